"""Kolo beside gloo in one process of torch: two groups of the same ranks, in turns. Also the C call alone.

    python perf/torch/collectives.py [--ranks 2,4] [--rounds 15] [--sizes 8,65536,26214400] [--device cuda]

With --device cuda it is beside NCCL, on a GPU for each rank, and without the C call. A turn is 10 to 200 calls.
Of each round it takes the slowest rank's time, and prints medians over the rounds in us, and the ratios of the rounds."""
import argparse
import ctypes
import statistics
import sys
import time

import beside  # before torch: it sets how many threads that has

import pykolo
import torch
import torch.distributed as dist

import kolo_torch  # noqa: F401


def operations(n, group, ranks, async_op, device):
    """What is timed, for vectors of n floats as the larger side."""
    full, part = torch.ones(n).to(device), torch.ones(max(n // ranks, 1)).to(device)
    whole, other = (torch.ones(part.numel() * ranks).to(device) for _ in range(2))
    lists = [torch.empty_like(part) for _ in range(ranks)]
    return {
        "all_reduce": lambda: dist.all_reduce(full, group=group, async_op=async_op),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group, async_op=async_op),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group, async_op=async_op),
        "all_gather_list": lambda: dist.all_gather(lists, part, group=group, async_op=async_op),
        "broadcast": lambda: dist.broadcast(full, 0, group=group, async_op=async_op),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group, async_op=async_op),
    }


def finish():
    """Waits for the GPU, if one is used."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def once(call, times):
    begin = time.perf_counter()
    for _ in range(times):
        work = call()
        if work is not None:
            work.wait()
    finish()
    return (time.perf_counter() - begin) / times * 1e6


def eight(call, times):
    begin = time.perf_counter()
    for _ in range(max(times // 8, 1)):
        for work in [call() for _ in range(8)]:
            work.wait()
    finish()
    return (time.perf_counter() - begin) / max(times // 8, 1) / 8 * 1e6


def c_call(comm, n, memory):
    """all_reduce of the library, by way of ctypes, which takes about 1 us."""
    x = memory.setdefault(n, torch.ones(n))
    function, handle, at = pykolo.library().kolo_all_reduce, comm._handle, ctypes.c_void_p(x.data_ptr())
    arguments = handle, at, at, ctypes.c_size_t(n), int(pykolo.Type.F32), int(pykolo.Op.SUM), None

    def call():
        function(*arguments)

    return call


def measure(rank, ranks, args, file):
    beside.bind(rank)
    if args.device == "cuda":
        if (found := torch.cuda.device_count()) < ranks:
            sys.exit(f"--device cuda: {ranks} ranks want a GPU each, and there are {found}")
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    kolo, theirs = dist.new_group(backend="kolo"), dist.new_group(backend="nccl") if args.device == "cuda" else None
    made = [pykolo.make_id() if rank == 0 else None]
    dist.broadcast_object_list(made)
    memory = {}  # what the C calls use
    comm = pykolo.Communicator(id=made[0], rank=rank, nranks=ranks)
    for size in args.sizes:
        n = max(size // 4, 1)
        k_sync, k_async = (operations(n, kolo, ranks, later, args.device) for later in (False, True))
        o_sync, o_async = (operations(n, theirs, ranks, later, args.device) for later in (False, True))
        rows = [(name, lambda t, c=k_sync[name]: once(c, t), lambda t, c=o_sync[name]: once(c, t)) for name in k_sync]
        rows += [("all_reduce async", lambda t: once(k_async["all_reduce"], t), lambda t: once(o_async["all_reduce"], t)),
                 ("all_reduce 8 async", lambda t: eight(k_async["all_reduce"], t), lambda t: eight(o_async["all_reduce"], t))]
        if args.device == "cpu":
            rows.append(("C all_reduce", lambda t: once(k_sync["all_reduce"], t), lambda t, c=c_call(comm, n, memory): once(c, t)))
        for name, ours, other in rows:
            times = max(10, min(200, int(2e6 / (size + 1000))))
            found = []
            for _ in range(args.rounds + 1):
                pair = []
                for side in (ours, other):
                    dist.barrier()
                    pair.append(side(times))
                slowest = torch.tensor(pair)
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                found.append(slowest.tolist())
            if rank == 0:
                found = found[1:]  # the first warms up
                ours, other = (statistics.median(x[k] for x in found) for k in (0, 1))
                print(f"{ranks:5} {size:10} {name:20} {ours:10.1f} {other:10.1f} {beside.ratios(found)}", flush=True)
    comm.close()
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=beside.numbers, default=[2, 4])
    parser.add_argument("--sizes", type=beside.numbers, default=[8, 1024, 65536, 1 << 20, 25 << 20])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    other = "gloo, or the C call of Kolo's library" if args.device == "cpu" else "NCCL"
    print(f"# torch {torch.__version__}; us; ratio: the other's time by Kolo's; the other is {other}")
    print(f"{'ranks':>5} {'bytes':>10} {'operation':20} {'kolo':>10} {'other':>10} {'ratio':>8}   95 % of its mean", flush=True)
    beside.run(measure, args)


if __name__ == "__main__":
    main()
