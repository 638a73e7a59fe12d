"""Long contexts: zerotrain with sequences over ranks, by the ring and by Ulysses, beside whole sequences.

usage: contexts.py [--build DIR] [--rounds R] [--model KIND] [--layers L] [--dim D] [--heads H] [--context C] [--batch B] [--steps N]

Each way trains N updates on B sequences of C tokens. Data parallelism, where each of two ranks has B / 2 whole sequences, sends no
keys and values. In rounds, each time in another order. A pair is the time of one rank over the time of the way in one round. Prints the
medians of tokens per second and of what rank 0 waited for messages of a context group, that of pairs with its 95 % interval, and the
activations of the rank that has most.
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


def zerotrain(a, ranks, batch, *options):
    command = [f"{a.build}/ringrun", "-n", ranks, f"{a.build}/zerotrain", "--data", DATA, "--model", a.model, "--layers", a.layers,
               "--dim", a.dim, "--heads", a.heads, "--context", a.context, "--batch", batch, "--steps", a.steps, "--print", a.steps,
               "--validate", 0, "--report", *options]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} returned {done.returncode}\n{done.stdout}{done.stderr}")
    waited = re.search(r"it waited (\S+) s", done.stdout)
    return (float(re.findall(r"tokens/s (\d+) lr", done.stdout)[-1]), float(re.search(r"activations +(\S+)", done.stdout)[1]),
            float(waited[1]) if waited else 0)


def arguments():
    p = argparse.ArgumentParser(description="long contexts of zerotrain")
    p.add_argument("--build", default="build")
    p.add_argument("--model", default="gpt2")
    for name, preset in [("rounds", 7), ("layers", 4), ("dim", 256), ("heads", 4), ("context", 2048), ("batch", 2), ("steps", 4)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    return p.parse_args()


def main():
    a = arguments()
    ways = {"one rank": lambda: zerotrain(a, 1, a.batch),
            "one rank, ring": lambda: zerotrain(a, 1, a.batch, "--context-parallel", 1),
            "2 ranks, data parallel": lambda: zerotrain(a, 2, a.batch // 2)}
    for n in (2, 4, 8):
        ways[f"{n} ranks, ring"] = lambda n=n: zerotrain(a, n, a.batch, "--context-parallel", n)
        ways[f"{n} ranks, ring, in turns"] = lambda n=n: zerotrain(a, n, a.batch, "--context-parallel", n, "--overlap", "off")
        if a.heads % n == 0:
            ways[f"{n} ranks, Ulysses"] = lambda n=n: zerotrain(a, n, a.batch, "--context-parallel", n, "--context-by", "ulysses")
    names, found = list(ways), {name: [] for name in ways}
    for k in range(a.rounds):
        for name in names[k % len(names):] + names[:k % len(names)]:
            found[name].append(ways[name]())
        print(f"# round {k + 1} of {a.rounds}", file=sys.stderr)
    print(f"# {a.model}, {a.layers} blocks, {a.dim} wide, {a.heads} heads, context {a.context}; {a.batch} sequences, {a.steps} updates; "
          f"{a.rounds} rounds")
    print(f"# {'way':<24} {'tokens/s':>9} {'MB':>9} {'waited s':>9}   time of one rank over this [95 % interval]")
    for name in names:
        pairs = sorted(y[0] / x[0] for x, y in zip(found["one rank"], found[name], strict=True))
        low, high = interval(pairs)
        speed, memory, waited = (statistics.median(column) for column in zip(*found[name], strict=True))
        print(f"{name:<26} {speed:>9.0f} {memory:>9.2f} {waited:>9.3f}   {statistics.median(pairs):.2f} [{low:.2f}, {high:.2f}]")


main()
