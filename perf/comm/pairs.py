"""Two sides measured beside each other, in rounds, in turns which of them is first, so that a machine that changes its mood
changes it for both.

A pair is the time of the first side over the time of the second in one round: above 1 the second is faster. A cell is behind if the
95 % interval of its median pair lies wholly below 1: the interval between the order statistics that the binomial distribution
gives. One cell in forty is behind by chance."""
import json
import math
import statistics
import subprocess
import sys


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def times(text):
    """{(bytes, place): microseconds} of what ringbench, or mpi_collectives.c, printed."""
    found = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {(r["bytes"], "in" if r["in_place"] else "out"): r["time_us"] for r in found}


def interval(values):
    """The 95 % interval of the median: between two order statistics."""
    values, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < n // 2 and below + math.comb(n, k) / 2 ** n <= 0.025:
        below += math.comb(n, k) / 2 ** n
        k += 1
    return values[max(k - 1, 0)], values[min(n - k, n - 1)]


def measure(sides, rounds, subjects, once):
    """once(side, subject) gives {cell: time}. Returns {subject: {cell: [(first side, second side), ...]}}."""
    pairs = {s: {} for s in subjects}
    for k in range(rounds):
        for subject in subjects:
            times = {side: once(side, subject) for side in (sides if k % 2 == 0 else sides[::-1])}
            for cell, first in times[sides[0]].items():
                pairs[subject].setdefault(cell, []).append((first, times[sides[1]][cell]))
        print(f"# round {k + 1} of {rounds}", file=sys.stderr)
    return pairs


def report(subject, cells, names=("before", "after")):
    """Prints a subject's cells; returns those that are behind."""
    behind, medians = [], []
    print(f"#\n# {subject}\n# {'bytes':>10} place {names[0] + ' us':>11} {names[1] + ' us':>11}   pair [95 % interval]")
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
