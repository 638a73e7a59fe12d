"""Kolo from Python: ctypes, numpy arrays in place, errors as exceptions.

usage: ringrun -n N python3 all_reduce.py [--library PATH] [ROOT]

Rank ROOT hands a weight to all; each contributes weight * (rank + 1), once for each type.
"""
import argparse
import ctypes
import ctypes.util
import sys

import numpy as np

# enum kolo_type and enum kolo_op of kolo.h
TYPES = {np.dtype(name): number for number, name in
         [(0, "i1"), (1, "u1"), (2, "i4"), (3, "u4"), (4, "i8"), (5, "u8"), (6, "f2"), (8, "f4"), (9, "f8")]}
SUM, PROD, MIN, MAX, AVG = range(5)

# A pointer or a size_t that ctypes is not told about would be passed as an int.
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
FUNCTIONS = {
    "kolo_last_error": (ctypes.c_char_p, []),
    "kolo_comm_create": (INT, [POINTER, ctypes.POINTER(POINTER)]),
    "kolo_comm_destroy": (None, [POINTER]),
    "kolo_comm_rank": (INT, [POINTER]),
    "kolo_comm_nranks": (INT, [POINTER]),
    "kolo_all_reduce": (INT, [POINTER, POINTER, POINTER, SIZE, INT, INT, POINTER]),
    "kolo_broadcast": (INT, [POINTER, POINTER, POINTER, SIZE, INT, INT, POINTER]),
}


class KoloError(Exception):
    """What was tried and the library's text; status is one of enum kolo_status."""

    def __init__(self, what, status, text):
        super().__init__(f"{what}: {text}")
        self.status = status


def load(path=None):
    """The library, from a path or from where the loader looks."""
    library = ctypes.CDLL(path or ctypes.util.find_library("kolo") or "libkolo.so.0")
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Communicator:
    """Joins when it is made, with what the launcher put into the environment; leaves at the end of `with`."""

    def __init__(self, library):
        self.library, self.handle = library, POINTER()
        self._check("joining", library.kolo_comm_create(None, ctypes.byref(self.handle)))
        self.rank, self.nranks = library.kolo_comm_rank(self.handle), library.kolo_comm_nranks(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.kolo_comm_destroy(self.handle)
        self.handle = POINTER()

    def all_reduce(self, array, op=SUM):
        """In place."""
        data, n, kind = self._buffer(array)
        self._check("all_reduce", self.library.kolo_all_reduce(self.handle, data, data, n, kind, op, None))

    def broadcast(self, array, root):
        data, n, kind = self._buffer(array)
        self._check("broadcast", self.library.kolo_broadcast(self.handle, data, data, n, kind, root, None))

    def _check(self, what, status):
        if status < 0:
            raise KoloError(what, status, self.library.kolo_last_error().decode())

    @staticmethod
    def _buffer(array):
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError("Kolo wants a contiguous array that may be written")
        if array.dtype not in TYPES:
            raise TypeError(f"Kolo has no type for {array.dtype}")
        return array.ctypes.data, array.size, TYPES[array.dtype]


def weighted_sum(comm, root, dtype):
    weight = np.full(1, comm.rank + 1, dtype)
    comm.broadcast(weight, root)
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
    try:
        with Communicator(load(a.library)) as comm:
            sums = [weighted_sum(comm, a.root, dtype) for dtype in TYPES]
            sys.stdout.write(f"rank {comm.rank} of {comm.nranks}: the sum is {sums[0]}\n")
    except (KoloError, ArithmeticError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
