"""What two ranks gain over one, by the way in which they share a replica: two replicas, a tensor group, a pipeline.

usage: grids.py [--build DIR] [--rounds R] [--layers L] [--dim D] [--micro M]

Runs zerotrain on one rank and on two, in rounds, each time in another order. The model, the samples of an update and the
micro-batches are the same for all; two replicas have half of the micro-batches each. A pair is the time of one rank
over the time of the way in one round: 2 would be twice as fast. Where two ranks have two cores, a pipeline can reach 2 m / (m + 1)
with m micro-batches, and ZB-H1 2 * 3 m / (3 m + 1) if forward, and backward for inputs and for weights, take equally long. Prints the
median of tokens per second, that of pairs with its 95 % interval, and this limit.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../comm")
from pairs import interval

DATA = "/usr/share/common-licenses/GPL-3"


def ways(m):
    """By name: ranks, options, and the most that can be gained."""
    return {
        "one rank": (1, ["--micro", m], 1),
        "one rank, --exact": (1, ["--micro", m, "--exact"], 1),
        "two replicas": (2, ["--micro", m // 2], 2),
        "--tp 2": (2, ["--micro", m, "--tp", 2], 2),
        "--tp 2, sequence": (2, ["--micro", m, "--tp", 2, "--sequence-parallel"], 2),
        "--tp 2 --exact": (2, ["--micro", m, "--tp", 2, "--exact"], 2),
        "--pp 2, gpipe": (2, ["--micro", m, "--pp", 2, "--schedule", "gpipe"], 2 * m / (m + 1)),
        "--pp 2, 1f1b": (2, ["--micro", m, "--pp", 2], 2 * m / (m + 1)),
        "--pp 2, zb-h1": (2, ["--micro", m, "--pp", 2, "--schedule", "zb-h1"], 2 * 3 * m / (3 * m + 1)),
    }


def seconds(a, ranks, options):
    """Of a token: the median of the updates after the first five."""
    command = [f"{a.build}/ringrun", "-n", str(ranks), f"{a.build}/zerotrain", "--data", DATA, "--layers", str(a.layers), "--dim", str(a.dim),
               "--context", "128", "--batch", "4", "--steps", "25", "--print", "1", "--validate", "0", "--threads", "1", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return 1 / statistics.median([float(x) for x in re.findall(r"tokens/s (\d+)", done.stdout)][5:])


def main():
    p = argparse.ArgumentParser(description="grids of two ranks beside one rank")
    p.add_argument("--build", default="build")
    for name, preset in [("rounds", 15), ("layers", 6), ("dim", 128), ("micro", 8)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    a = p.parse_args()
    all_of_them = ways(a.micro)
    names, times = list(all_of_them), {name: [] for name in all_of_them}
    for k in range(a.rounds):
        for name in names[k % len(names):] + names[:k % len(names)]:
            times[name].append(seconds(a, *all_of_them[name][:2]))
        print(f"# round {k + 1} of {a.rounds}", file=sys.stderr)
    print(f"# {a.layers} blocks, {a.dim} wide, context 128, {a.micro} micro-batches of 4 samples; {a.rounds} rounds")
    print(f"# {'way':<18} {'tokens/s':>9}   pair [95 % interval]     limit")
    for name, (_, _, limit) in all_of_them.items():
        ratios = [one / way for one, way in zip(times["one rank"], times[name])]
        low, high = interval(ratios)
        print(f"{name:<20} {1 / statistics.median(times[name]):9.0f}   {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]   {limit:.3f}")


main()
