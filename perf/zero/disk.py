"""State in files beside fio: bytes read and written in a second by the pattern of an update, and by fio's mixed sequential one.

usage: disk.py DIR [--mib M] [--unit KIB] [--buffers N] [--block KIB] [--depth N] [--rounds R] [--out FILE]

Rounds of zero_disk and of fio in turns, in one directory, so that a disk that changes its mood changes it for both. zero_disk
reads each unit of a file ahead, and writes it back later (median of its passes); fio reads and writes as many bytes of a file of
that size, in order, half of them each way, with requests of the same size, as many at a time, by io_uring, from buffers that
the system knows, and past its cache. Prints medians, and that of the rounds' ratios: above 1 Kolo is faster. Needs a built tree
(make perf-programs) and the program fio (make deps WITH=perf).
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

B = os.environ.get("B", "build")


def arguments():
    p = argparse.ArgumentParser(description="state in files beside fio")
    p.add_argument("dir")
    for name, preset in [("mib", 1024), ("unit", 3072), ("buffers", 4), ("block", 1024), ("depth", 8), ("rounds", 9)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    p.add_argument("--out")
    return p.parse_args()


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_zero_disk(a, directory):
    text = output([f"{B}/perf/zero_disk", directory, *map(str, (a.mib, a.unit, a.buffers, a.block, a.depth))])
    return statistics.median(float(line.split()[0]) for line in text.splitlines())


def fio(a, directory, *more):
    text = output(["fio", "--name=state", f"--filename={directory}/fio", f"--size={a.mib}m", f"--bs={a.block}k", f"--iodepth={a.depth}",
                   "--ioengine=io_uring", "--fixedbufs=1", "--direct=1", "--output-format=json", *more])
    job = json.loads(text[text.index("{"):])["jobs"][0]
    return (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / 1e3 / job["job_runtime"]


def run_fio(a, directory):
    """Of a file that was written before, as zero_disk's is: as many passes, each of them twice its size."""
    return fio(a, directory, "--rw=rw", "--rwmixread=50", "--overwrite=1", f"--io_size={2 * PASSES * a.mib}m")


PASSES = 5  # as zero_disk's


def file_system(directory):
    found = output(["stat", "-f", "-c", "%T", directory]).strip()
    return f"{directory} on {found}"


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"Kolo {commit}, {model}, {os.cpu_count()} cores, Linux {platform.release()}"


def main():
    a = arguments()
    if not shutil.which("fio"):
        sys.exit("disk.py: the program fio is missing: make deps WITH=perf")
    ours, fios = [], []
    with tempfile.TemporaryDirectory(prefix="kolo-perf-", dir=a.dir) as directory:
        fio(a, directory, "--rw=write")
        for _ in range(a.rounds):
            ours.append(run_zero_disk(a, directory))
            fios.append(run_fio(a, directory))
    ratios = sorted(k / f for k, f in zip(ours, fios))
    out = open(a.out, "w") if a.out else sys.stdout
    print(f"{machine()}\n\n{file_system(a.dir)}; a file of {a.mib} MiB, units of {a.unit} KiB, {a.buffers} buffers, {a.depth} requests of"
          f" {a.block} KiB at a time; {a.rounds} rounds; MB/s, reads and writes together\n"
          f"zero_disk {statistics.median(ours):8.0f}   ({min(ours):.0f} to {max(ours):.0f})\n"
          f"fio       {statistics.median(fios):8.0f}   ({min(fios):.0f} to {max(fios):.0f})\n"
          f"ratio     {statistics.median(ratios):8.2f}   ({ratios[0]:.2f} to {ratios[-1]:.2f})", file=out)


if __name__ == "__main__":
    main()
