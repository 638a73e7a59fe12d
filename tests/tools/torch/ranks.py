"""Ranks as forked processes: torch is imported once."""
import faulthandler
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

import torch
import torch.distributed as dist

if os.environ.get("T_BACKEND", "kolo") == "kolo":
    import kolo_torch  # noqa: F401


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _main(function, rank, n, place, arguments, failed, patience):
    faulthandler.dump_traceback_later(patience - 2)  # a stack instead of a stuck job
    try:
        torch.set_num_threads(1)
        function(rank, n, place, *arguments)
    except BaseException:
        traceback.print_exc()
        failed.put(rank)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def run(n, function, *arguments, may_die=(), patience=float(os.environ.get("T_PATIENCE", "120"))):
    """Runs function(rank, n, place, ...) on n ranks. `place` is a folder that they share. Raises if a rank fails or hangs."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="kolo-torch-") as place:
        failed = context.Queue()
        os.environ["MASTER_PORT"] = str(free_port())
        all = [context.Process(target=_main, args=(function, r, n, place, arguments, failed, patience)) for r in range(n)]
        for p in all:
            p.start()
        until = time.monotonic() + patience
        for p in all:
            p.join(max(0.1, until - time.monotonic()))
        late = [r for r, p in enumerate(all) if p.is_alive()]
        for p in all:
            p.kill()
        assert not late, f"ranks {late} hang"
        bad = [(r, p.exitcode) for r, p in enumerate(all) if p.exitcode and r not in may_die]
        assert not bad, f"ranks and their exit codes: {bad}"


BACKEND = os.environ.get("T_BACKEND", "kolo")  # nccl: torch's, on libnccl of Kolo
DEVICE = os.environ.get("T_DEVICE", "cpu")  # cuda: each rank has one of them
REAL_GPU = "T_REAL_GPU" in os.environ  # set by tests/lib/torch_gpus.py


def there(x):
    """A tensor where the operations are tried."""
    return x.to(DEVICE)


def here(x):
    return x.cpu()


def gpu(rank):
    """Of one of the ranks; they share GPUs where there are too few."""
    return torch.device("cuda", rank % torch.cuda.device_count())


def join(backend, rank, n, place, kernels=False, **kwargs):
    """kernels: a GPU made of threads gets them."""
    global DEVICE
    if backend == "gloo":
        DEVICE = "cpu"
    if DEVICE != "cpu":
        torch.cuda.set_device(gpu(rank))
        if kernels and not REAL_GPU:
            from kernels import Kernels

            Kernels().__enter__()
    dist.init_process_group(backend, init_method=f"file://{place}/{kwargs.pop('store', 'store')}", rank=rank, world_size=n, **kwargs)


def main(cases):
    """Runs the cases that the command line names, or all."""
    for case in cases:
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            case()
            print("good", case.__name__, flush=True)
