"""What the programs beside it share: ranks as forks that import torch once, and what rounds say."""
import multiprocessing
import os
import statistics
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def numbers(text):
    return [int(x) for x in text.split(",")]


def bind(rank):
    """Each rank has a core, while these last."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def ratios(found):
    """Of rounds that begin with Kolo's time and another one: the median of the second by the first, and 95 % of the mean."""
    of_rounds = [x[1] / x[0] for x in found]
    half = 1.96 * statistics.stdev(of_rounds) / len(of_rounds) ** 0.5 if len(of_rounds) > 1 else 0
    mean = statistics.mean(of_rounds)
    return f"{statistics.median(of_rounds):8.2f}   {mean - half:.2f} to {mean + half:.2f}"


def run(measure, args):
    """measure(rank, ranks, args, file) on each number of ranks; `file` is for a FileStore."""
    context = multiprocessing.get_context("fork")
    for ranks in args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            all = [context.Process(target=measure, args=(r, ranks, args, f"{folder}/store")) for r in range(ranks)]
            for p in all:
                p.start()
            for p in all:
                p.join()
            if any(p.exitcode for p in all):
                sys.exit("a rank failed")
