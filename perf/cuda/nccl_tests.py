"""NVIDIA's NCCL and Kolo's libnccl.so.2 beside each other, by programs of nccl-tests that are in PATH.

usage: nccl_tests.py [--gpus G] [--rounds R] [--max BYTES] [--build FOLDER] [PROGRAM ...]

PROGRAM: all_reduce_perf (default), all_gather_perf, ... Each round runs every program twice, as it is and through
FOLDER/nccl/kolo-nccl, in turns which of them is first. One process has G GPUs (default: 1). A pair is NVIDIA's time over
Kolo's in one round: above 1 Kolo is faster (../comm/pairs.py says when a cell is behind). Exit status: 0; 1 if a cell is
behind; 2 if a result is wrong, or a program fails.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "comm"))
from pairs import measure, output, report  # noqa: E402


def times(text):
    """{(bytes, place): microseconds} of a program's table: its last columns are, out of place and in place, time, two
    rates, and wrong results."""
    found = {}
    for words in map(str.split, text.splitlines()):
        if len(words) < 12 or not words[0].isdigit():
            continue
        for place, at in (("out", -8), ("in", -4)):
            if words[at + 3] not in ("0", "N/A"):
                print(f"wrong results: {' '.join(words)}", file=sys.stderr)
                sys.exit(2)
            if words[at] != "N/A" and float(words[at]) > 0:
                found[int(words[0]), place] = float(words[at])
    if not found:
        print(f"no table in:\n{text}", file=sys.stderr)
        sys.exit(2)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=["all_reduce_perf"])
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--max", type=int, default=128 << 20)
    parser.add_argument("--build", default="build")
    a = parser.parse_args()

    def once(side, program):
        through = [f"{a.build}/nccl/kolo-nccl"] if side == "Kolo" else []
        return times(output([*through, program, "-b", "8", "-e", str(a.max), "-f", "4", "-g", str(a.gpus)]))

    pairs = measure(["NCCL", "Kolo"], a.rounds, a.programs, once)
    behind = [cell for program in a.programs for cell in report(program, pairs[program], ("NCCL", "Kolo"))]
    print(f"# behind: {len(behind)}", *behind, sep="\n# ")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
