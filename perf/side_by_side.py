"""Kolo's all-reduce beside the MPI libraries that are installed: interleaved rounds, ratios, medians.

usage: side_by_side.py [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F] [--out FILE]

Each round runs ringbench and then each MPI library, so that a machine that changes its mood changes it for all.
A ratio above 1 means that Kolo is faster. Needs a built tree (make perf).
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

B = os.environ.get("B", "build")
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
PEERS = {  # name: compiler, launcher and its options to bind to cores or not to
    "openmpi": ("mpicc.openmpi", ["mpirun.openmpi", *AS_ROOT, "--oversubscribe", "--bind-to"]),
    "mpich": ("mpicc.mpich", ["mpiexec.mpich", "-bind-to"]),
}


def rows(command):
    """{(bytes, in_place): microseconds} of one run."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    found = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {(r["bytes"], r["in_place"]): r["time_us"] for r in found}


def build_peers():
    built = {}
    os.makedirs(f"{B}/perf", exist_ok=True)
    for name, (compiler, launcher) in PEERS.items():
        if not shutil.which(compiler) or not shutil.which(launcher[0]):
            print(f"# {name}: not installed ({compiler})", file=sys.stderr)
            continue
        program = f"{B}/perf/mpi_allreduce.{name}"
        subprocess.run([compiler, "-O2", "-o", program, "perf/mpi_allreduce.c"], check=True)
        built[name] = (launcher, program)
    return built


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"{model}, {os.cpu_count()} processors, commit {commit}"


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--rounds", type=int, default=7)
    parse.add_argument("--ranks", type=int, default=2)
    parse.add_argument("--min", type=int, default=8)
    parse.add_argument("--max", type=int, default=128 << 20)
    parse.add_argument("--factor", type=int, default=4)
    parse.add_argument("--out")
    a = parse.parse_args()
    sizes = [str(a.min), str(a.max), str(a.factor)]
    peers = build_peers()
    if not peers:
        sys.exit("no MPI library is installed: apt install openmpi-bin libopenmpi-dev mpich libmpich-dev")
    times = {name: [] for name in ["kolo", *peers]}
    for k in range(a.rounds):
        times["kolo"].append(rows([f"{B}/ringbench", "-n", str(a.ranks), "-b", sizes[0], "-e", sizes[1], "-f",
                                   sizes[2], "-c", "0", "--json", "-"]))
        for name, (launcher, program) in peers.items():
            bind = "core" if a.ranks <= os.cpu_count() else "none"
            times[name].append(rows([*launcher, bind, "-n", str(a.ranks), program, *sizes]))
        print(f"# round {k + 1} of {a.rounds}", file=sys.stderr)
    report(a, peers, times)


def report(a, peers, times):
    out = open(a.out, "w") if a.out else sys.stdout
    print(f"# all-reduce, f32 sum, {a.ranks} ranks, {a.rounds} interleaved rounds; {machine()}", file=out)
    print("# us: median over rounds of the median of the slowest rank. ratio: peer / Kolo within a round, median\n"
          "# [least, most] over rounds; above 1 Kolo is faster.", file=out)
    print(f"# {'bytes':>10} {'place':>5} {'kolo us':>10}" + "".join(
        f" {n + ' us':>11} {'ratio [least, most]':>22}" for n in peers), file=out)
    for key in sorted(times["kolo"][0]):
        line = f"  {key[0]:>10} {'in' if key[1] else 'out':>5} {statistics.median(t[key] for t in times['kolo']):>10.2f}"
        for name in peers:
            ratios = [p[key] / k[key] for p, k in zip(times[name], times["kolo"])]
            line += (f" {statistics.median(t[key] for t in times[name]):>11.2f}"
                     f" {statistics.median(ratios):>8.2f} [{min(ratios):.2f}, {max(ratios):.2f}]".ljust(23))
        print(line, file=out, flush=True)


main()
