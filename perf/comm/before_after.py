"""Two builds of Kolo beside each other: did a change make anything slower?

usage: before_after.py BEFORE AFTER [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F]
                       [--iterations I] [--with-barrier] [--train] [COLLECTIVE ...]

BEFORE and AFTER are build folders, each with ringrun and ringbench (with --train: zerotrain). Each round
runs both, in turns which of them is first, so that a machine that changes its mood changes it for both.
Without COLLECTIVE: all of ringbench's. With --train the rounds are of zerotrain at stages 0 to 3 instead.
With --with-barrier the time is that of a barrier and the operation after it: if the change made barriers
faster, ranks begin the operation less at the same time, and the operation alone looks slower than it is.

A pair is the time before over the time after in one round: above 1 the change is faster. A cell is a collective,
a size, in place or not (pairs.py says when it is behind). Prints every cell, those that are behind, and the
geometric mean per collective. Exit status: 0, or 1 if any cell is behind; run it twice.
"""
import argparse
import re
import statistics
import sys

from pairs import measure, output, report, times

COLLECTIVES = ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all", "gather",
               "scatter", "send_recv", "barrier"]
DATA = "/usr/share/common-licenses/GPL-3"


def bench(build, collective, a):
    """{(bytes, place): microseconds} of one run of ringbench."""
    options = ["-n", str(a.ranks), "-b", str(a.min), "-e", str(a.max), "-f", str(a.factor), "-c", "0"]
    if a.iterations:
        options += ["-i", str(a.iterations)]
    if a.with_barrier:
        options.append("--with-barrier")
    return times(output([f"{build}/ringbench", collective, *options, "--json", "-"]))


def train(build, stage, a):
    """{("step", ""): microseconds of a token} of one run of zerotrain."""
    text = output([f"{build}/ringrun", "-n", str(a.ranks), f"{build}/zerotrain", "--data", DATA, "--stage",
                   stage.split()[-1], "--steps", "40", "--print", "1", "--threads", "1", "--validate", "0"])
    speeds = [float(x) for x in re.findall(r"tokens/s (\d+)", text)]
    return {("step", ""): 1e6 / statistics.median(speeds[5:])}


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
    once = train if a.train else bench
    pairs = measure([a.before, a.after], a.rounds, subjects, lambda build, subject: once(build, subject, a))
    behind = [cell for subject in subjects for cell in report(subject, pairs[subject])]
    print("#\n# behind: " + ("; ".join(behind) if behind else "none"))
    sys.exit(1 if behind else 0)


main()
