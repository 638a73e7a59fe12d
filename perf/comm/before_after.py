"""Two builds of Kolo beside each other: did a change make anything slower?

usage: before_after.py BEFORE AFTER [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F]
                       [--iterations I] [--with-barrier] [--train] [COLLECTIVE ...]

BEFORE and AFTER are build folders, each with ringrun and ringbench (with --train: zerotrain). Each round
runs both, in turns which of them is first, so that a machine that changes its mood changes it for both.
Without COLLECTIVE: all of ringbench's. With --train the rounds are of zerotrain at stages 0 to 3 instead.
With --with-barrier the time is that of a barrier and the operation after it: if the change made barriers
faster, ranks begin the operation less at the same time, and the operation alone looks slower than it is.

A pair is the time before over the time after in one round: above 1 the change is faster. A cell (a
collective, a size, in place or not) is behind if the 95 % interval of its median pair lies wholly below 1:
the interval between the order statistics that the binomial distribution gives. Prints every cell, those that
are behind, and the geometric mean per collective. Exit status: 0, or 1 if any cell is behind; run it twice,
since one cell in forty is behind by chance.
"""
import argparse
import json
import math
import re
import statistics
import subprocess
import sys

COLLECTIVES = ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all", "gather",
               "scatter", "send_recv", "barrier"]
DATA = "/usr/share/common-licenses/GPL-3"


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def bench(build, collective, a):
    """{(bytes, place): microseconds} of one run of ringbench."""
    options = ["-n", str(a.ranks), "-b", str(a.min), "-e", str(a.max), "-f", str(a.factor), "-c", "0"]
    if a.iterations:
        options += ["-i", str(a.iterations)]
    if a.with_barrier:
        options.append("--with-barrier")
    text = output([f"{build}/ringbench", collective, *options, "--json", "-"])
    found = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {(r["bytes"], "in" if r["in_place"] else "out"): r["time_us"] for r in found}


def train(build, stage, a):
    """{("step", ""): microseconds of a token} of one run of zerotrain."""
    text = output([f"{build}/ringrun", "-n", str(a.ranks), f"{build}/zerotrain", "--data", DATA, "--stage",
                   stage.split()[-1], "--steps", "40", "--print", "1", "--threads", "1", "--validate", "0"])
    speeds = [float(x) for x in re.findall(r"tokens/s (\d+)", text)]
    return {("step", ""): 1e6 / statistics.median(speeds[5:])}


def interval(values):
    """The 95 % interval of the median: between two order statistics."""
    values, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < n // 2 and below + math.comb(n, k) / 2 ** n <= 0.025:
        below += math.comb(n, k) / 2 ** n
        k += 1
    return values[max(k - 1, 0)], values[min(n - k, n - 1)]


def measure(a, subjects, once):
    """{subject: {cell: [(before, after), ...]}}"""
    pairs = {s: {} for s in subjects}
    for k in range(a.rounds):
        for subject in subjects:
            order = [a.before, a.after] if k % 2 == 0 else [a.after, a.before]
            times = {build: once(build, subject, a) for build in order}
            for cell, before in times[a.before].items():
                pairs[subject].setdefault(cell, []).append((before, times[a.after][cell]))
        print(f"# round {k + 1} of {a.rounds}", file=sys.stderr)
    return pairs


def report(subject, cells):
    """Prints a subject's cells; returns those that are behind."""
    behind, medians = [], []
    print(f"#\n# {subject}\n# {'bytes':>10} place   before us    after us   pair [95 % interval]")
    for cell, pairs in cells.items():
        ratios = [before / after for before, after in pairs]
        median, (low, high) = statistics.median(ratios), interval(ratios)
        medians.append(median)
        before, after = (statistics.median(column) for column in zip(*pairs))
        mark = "  behind" if high < 1 else ""
        print(f"{cell[0]:>12} {cell[1]:>5} {before:11.2f} {after:11.2f}   {median:.3f} [{low:.3f}, {high:.3f}]{mark}")
        if high < 1:
            behind.append(f"{subject} {cell[0]} {cell[1]}: {median:.3f}")
    mean = math.exp(statistics.fmean(map(math.log, medians)))
    print(f"# {subject}: geometric mean {mean:.3f}")
    return behind


def arguments():
    p = argparse.ArgumentParser(description="two builds of Kolo beside each other")
    p.add_argument("before")
    p.add_argument("after")
    for name, preset in [("rounds", 15), ("ranks", 2), ("min", 8), ("max", 128 << 20), ("factor", 8), ("iterations", 0)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    p.add_argument("--train", action="store_true")
    p.add_argument("--with-barrier", action="store_true")
    p.add_argument("collectives", nargs="*")
    return p.parse_intermixed_args()


def main():
    a = arguments()
    all_of_them = [c for c in COLLECTIVES if not (a.with_barrier and c in ("send_recv", "barrier"))]
    subjects = [f"stage {s}" for s in range(4)] if a.train else a.collectives or all_of_them
    pairs = measure(a, subjects, train if a.train else bench)
    behind = [cell for subject in subjects for cell in report(subject, pairs[subject])]
    print("#\n# behind: " + ("; ".join(behind) if behind else "none"))
    sys.exit(1 if behind else 0)


main()
