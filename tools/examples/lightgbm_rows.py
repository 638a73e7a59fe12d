"""LightGBM on Kolo: each rank has some of the rows, and all get the same trees.

usage: ringrun -n N python3 lightgbm_rows.py [--library PATH] [--model FILE]

LightGBM takes two functions in place of its own network. Blocks of a sum go to their owner, who adds them up in the order of the
ranks, by LightGBM's own function. That is the traffic of a reduce-scatter. It wants the packages lightgbm and pykolo.
"""
import argparse
import ctypes
import os
import sys

import lightgbm
import numpy as np
import pykolo

I32, BYTES = ctypes.c_int32, ctypes.POINTER(ctypes.c_uint8)
ADD = ctypes.CFUNCTYPE(None, BYTES, BYTES, ctypes.c_int, I32)  # (from, to, bytes of an element, bytes)
REDUCE_SCATTER = ctypes.CFUNCTYPE(None, BYTES, I32, ctypes.c_int, ctypes.POINTER(I32), ctypes.POINTER(I32), ctypes.c_int, BYTES, I32,
                                  ctypes.POINTER(ADD))
ALL_GATHER = ctypes.CFUNCTYPE(None, BYTES, I32, ctypes.POINTER(I32), ctypes.POINTER(I32), ctypes.c_int, BYTES, I32)


def network(comm):
    """The two functions. They must stay alive as long as LightGBM does."""
    def array(at, length):
        return np.ctypeslib.as_array(at, (length, )) if length else np.empty(0, np.uint8)

    def reduce_scatter(src, nbytes, size, starts, lengths, nblocks, dst, _, add):
        own = lengths[comm.rank]
        parts = np.empty((nblocks, own), np.uint8)
        comm.all_to_all(array(src, nbytes), parts.reshape(-1), send_counts=lengths[:nblocks], recv_counts=[own] * nblocks)
        array(dst, own)[:] = parts[0]
        for part in parts[1:]:
            add[0](part.ctypes.data_as(BYTES), dst, size, own)

    def all_gather(src, nbytes, _, lengths, nblocks, dst, all_bytes):
        comm.all_gather(array(src, nbytes), array(dst, all_bytes), counts=lengths[:nblocks])

    def or_die(function):
        """LightGBM has no way to learn of an error."""
        def call(*arguments):
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001
                sys.stderr.write(f"{error}\n")
                comm.abort()
                os._exit(1)
        return call

    return REDUCE_SCATTER(or_die(reduce_scatter)), ALL_GATHER(or_die(all_gather))


def train(comm):
    """The model, and its squared error on the rows of all ranks."""
    draw = np.random.default_rng(2026)
    x = draw.normal(size=(20000, 10))
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 2])
    settings = {"objective": "regression", "tree_learner": "data", "num_machines": comm.nranks, "pre_partition": True, "num_threads": 1,
                "verbosity": -1}
    rows = lightgbm.Dataset(x[comm.rank::comm.nranks], y[comm.rank::comm.nranks], params=settings)
    model = lightgbm.train(settings, rows, num_boost_round=50)
    return model, float(np.mean((model.predict(x) - y) ** 2))


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--library", help="path of libkolo.so.0")
    parse.add_argument("--model", help="rank 0 saves the trees there")
    a = parse.parse_args()
    pykolo.load(a.library)
    try:
        with pykolo.Communicator() as comm:
            functions = network(comm)
            if lightgbm.basic._LIB.LGBM_NetworkInitWithFunctions(comm.nranks, comm.rank, *functions):
                sys.exit("LightGBM takes no functions")
            model, error = train(comm)
            if a.model and comm.rank == 0:
                model.save_model(a.model)
            sys.stdout.write(f"rank {comm.rank} of {comm.nranks}: {model.num_trees()} trees, squared error {error:.6f}\n")
            lightgbm.basic._LIB.LGBM_NetworkFree()
    except pykolo.KoloError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
