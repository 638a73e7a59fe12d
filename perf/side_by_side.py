"""Kolo's collectives beside those of the MPI libraries that are installed: interleaved rounds, ratios, medians.

usage: side_by_side.py [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F] [--out FILE] [COLLECTIVE ...]

Each round runs ringbench and then each MPI library, so that a machine that changes its mood changes it for all; it says
with which stores Kolo's links were faster when it began: cores that share a cache want ordinary ones. A ratio is that
of the best other library's time and Kolo's in one round: above 1 Kolo is faster. Needs a built tree (make perf).
"""
import argparse
import json
import math
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
        program = f"{B}/perf/mpi_collectives.{name}"
        subprocess.run([compiler, "-O2", "-o", program, "perf/mpi_collectives.c"], check=True)
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


COLLECTIVES = ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather"]


def mood(ranks):
    """The kinds of stores that Kolo's links took just now, and the slowest rate."""
    done = subprocess.run([f"{B}/ringrun", "-n", str(ranks), f"{B}/ringinfo", "--probe", "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ringinfo returned {done.returncode}\n{done.stderr}")
    it = json.loads(done.stdout)
    stores = sorted({r["stores"] for r in it["ring"]["ranks"]})
    return f"{'+'.join(stores)} stores, {min(e['rate_GBs'] for e in it['probe']['edges']):.1f} GB/s"


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--rounds", type=int, default=7)
    parse.add_argument("--ranks", type=int, default=2)
    parse.add_argument("--min", type=int, default=8)
    parse.add_argument("--max", type=int, default=128 << 20)
    parse.add_argument("--factor", type=int, default=4)
    parse.add_argument("--out")
    parse.add_argument("collectives", nargs="*", default=COLLECTIVES, metavar="COLLECTIVE")
    a = parse.parse_args()
    if a.ranks < 2 or set(a.collectives) - set(COLLECTIVES):
        parse.error(f"at least 2 ranks, and collectives of: {' '.join(COLLECTIVES)}")
    peers = build_peers()
    if not peers:
        sys.exit("no MPI library is installed: apt install openmpi-bin libopenmpi-dev mpich libmpich-dev")
    bind = "core" if a.ranks <= os.cpu_count() else "none"
    times = {(name, coll): [] for name in ["kolo", *peers] for coll in a.collectives}
    moods = []
    for k in range(a.rounds):
        moods.append(mood(a.ranks))
        for coll in a.collectives:
            # Each rank's part of the vector holds an element.
            sizes = [str(max(a.min, 4 * a.ranks)), str(a.max), str(a.factor)]
            times["kolo", coll].append(rows([f"{B}/ringbench", "-n", str(a.ranks), coll, "-b", sizes[0], "-e", sizes[1],
                                             "-f", sizes[2], "-c", "0", "--json", "-"]))
            for name, (launcher, program) in peers.items():
                times[name, coll].append(rows([*launcher, bind, "-n", str(a.ranks), program, coll, *sizes]))
        print(f"# round {k + 1} of {a.rounds}: {moods[-1]}", file=sys.stderr)
    with open(a.out, "w") if a.out else sys.stdout as out:
        report(out, a, peers, times, moods)


def report(out, a, peers, times, moods):
    print(f"# f32, sum, root 0, {a.ranks} ranks, {a.rounds} interleaved rounds; {machine()}", file=out)
    for text in sorted(set(m.split(",")[0] for m in moods)):
        print(f"# {sum(m.startswith(text) for m in moods)} rounds: {text} were faster", file=out)
    print("# us: median over rounds of the median of the slowest rank. ratio: best other / Kolo within a round, median\n"
          "# [least, most] over rounds; above 1 Kolo is faster.", file=out)
    for coll in a.collectives:
        print(f"#\n# {coll}\n# {'bytes':>10} {'place':>5} {'kolo us':>10}" + "".join(f" {n + ' us':>11}" for n in peers) +
              f" {'ratio [least, most]':>22}", file=out)
        medians = []
        for key in sorted(times["kolo", coll][0]):
            kolo = [t[key] for t in times["kolo", coll]]
            others = [[t[key] for t in times[name, coll]] for name in peers]
            ratios = [min(o[k] for o in others) / kolo[k] for k in range(a.rounds)]
            medians.append(statistics.median(ratios))
            print(f"  {key[0]:>10} {'in' if key[1] else 'out':>5} {statistics.median(kolo):>10.2f}" +
                  "".join(f" {statistics.median(o):>11.2f}" for o in others) +
                  f" {medians[-1]:>8.2f} [{min(ratios):.2f}, {max(ratios):.2f}]", file=out)
        mean = math.exp(sum(map(math.log, medians)) / len(medians))
        print(f"# {coll}: geometric mean of the ratios {mean:.2f}, least {min(medians):.2f}", file=out, flush=True)


main()
