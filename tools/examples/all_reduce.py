"""Kolo from Python: numpy arrays in place, errors as exceptions.

usage: ringrun -n N python3 all_reduce.py [--library PATH] [ROOT]

Rank ROOT hands a weight to all; each contributes weight * (rank + 1), once for each type.
It wants the package pykolo: pip install tools/python, or PYTHONPATH=tools/python.
"""
import argparse
import sys

import numpy as np
import pykolo

TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def weighted_sum(comm, root, dtype):
    weight = np.full(1, comm.rank + 1, dtype)
    comm.broadcast(weight, root=root)
    x = np.full((10, 100), weight[0] * (comm.rank + 1), dtype)
    comm.all_reduce(x)
    if not np.all(x == (root + 1) * comm.nranks * (comm.nranks + 1) // 2):
        raise ArithmeticError(f"the sum of {dtype} is wrong")
    return x[-1, -1]


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--library", help="path of libkolo.so.0")
    parse.add_argument("root", nargs="?", type=int, default=0)
    a = parse.parse_args()
    pykolo.load(a.library)
    try:
        with pykolo.Communicator() as comm:
            sums = [weighted_sum(comm, a.root, dtype) for dtype in TYPES]
            sys.stdout.write(f"rank {comm.rank} of {comm.nranks}: the sum is {sums[0]}\n")
    except (pykolo.KoloError, ArithmeticError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
