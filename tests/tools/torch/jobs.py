"""Process groups come and go, ranks die, and random programs do what they do on gloo.

T_LONG=1: 100 times and 50 programs instead of 20 and 8. T_SEED chooses other programs."""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta

from ranks import dist, free_port, join, main, run, torch

LONG = bool(os.environ.get("T_LONG"))
SEED = int(os.environ.get("T_SEED", "2026"))
VERSION = tuple(int(x) for x in torch.__version__.split(".")[:2])
CASES = []


def case(function):
    CASES.append(function)
    return function


# ---- Coming and going

def _again(rank, n, place, kind, times):
    if kind == "file":
        store = dist.FileStore(f"{place}/store", n)
    else:
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), n, rank == 0)
    for k in range(times):
        dist.init_process_group("kolo", store=store, rank=rank, world_size=n)
        x = torch.tensor([rank + k])
        dist.all_reduce(x)
        assert x.item() == sum(r + k for r in range(n))
        half = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(x, group=half)
        dist.destroy_process_group()
    assert threading.active_count() == 1 and len(os.listdir("/proc/self/fd")) < 60


@case
def a_store_serves_one_group_after_the_other():
    for kind in ("file", "tcp"):
        run(3, _again, kind, 100 if LONG else 20)


WORKER = """
import os, signal, sys
import torch, torch.distributed as dist
import kolo_torch
dist.init_process_group("kolo")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
x = torch.ones(1000)
dist.all_reduce(x)
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    for _ in range(100):
        dist.all_reduce(x)
    dist.barrier()
except dist.DistBackendError:
    sys.exit(3)
print(f"rank {rank} attempt {attempt} done", flush=True)
dist.destroy_process_group()
"""


@case
def a_restarted_job_joins_anew():
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(WORKER)
        file.flush()
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3", "--max-restarts=2", "--rdzv-backend=c10d",
                               f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--monitor-interval=0.2", file.name],
                              capture_output=True, text=True, timeout=200)
    lines = sorted(re.findall(r"rank \d attempt \d done", done.stdout))
    assert done.returncode == 0 and lines == [f"rank {r} attempt 1 done" for r in range(3)], (done.stdout, done.stderr[-3000:])


# ---- Deaths and delays

def _told(call, *words):
    began = time.monotonic()
    try:
        call()
    except dist.DistBackendError as e:
        assert all(word in str(e) for word in words), e
        assert time.monotonic() - began < 2.5, time.monotonic() - began
        return
    raise AssertionError("nothing was raised")


def _dies(rank, n, place, how):
    join("kolo", rank, n, place)
    x = torch.ones(100000)
    dist.all_reduce(x)
    if rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    def waits():
        if how == "sync":
            dist.all_reduce(x)
        elif how == "async":
            dist.all_reduce(x, async_op=True).wait()
        elif how == "future":
            dist.all_reduce(x, async_op=True).get_future().wait()
        elif rank == 0:
            dist.recv(x, 1, tag=3)
        else:
            dist.recv(x, 0, tag=3)
    words = ["group 0, rank", "rank 1 (pid"] + (["all_reduce number 2"] if how != "recv" else ["recv number 1"])
    if how == "future":  # its errors are those of torch's futures
        try:
            waits()
        except Exception as e:
            assert "rank 1 (pid" in str(e), e
        return
    _told(waits, *words)
    if how != "recv":
        _told(lambda: dist.all_reduce(x), "rank 1 (pid")


@case
def a_dead_rank_is_named_by_all_others():
    for how in ("sync", "async", "future", "recv"):
        run(4, _dies, how, may_die=(1,))


def _aborts(rank, n, place):
    join("kolo", rank, n, place)
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    if rank == 0:
        time.sleep(0.3)
        group.abort()
    else:
        _told(lambda: dist.all_reduce(torch.ones(5)), "abort")


@case
def an_abort_ends_what_others_wait_for():
    if VERSION >= (2, 10):  # before, Python has no abort
        run(3, _aborts)


def _late(rank, n, place):
    join("kolo", rank, n, place, timeout=timedelta(seconds=1))
    if rank == 2:
        time.sleep(2)
        return
    _told(lambda: dist.all_reduce(torch.ones(5)), "rank 2 (pid", "timeout")


def _missing(rank, n, place):
    if rank == 2:
        return
    try:
        join("kolo", rank, n, place, timeout=timedelta(seconds=2))
    except (dist.DistBackendError, dist.DistStoreError) as e:
        assert rank or "2" in str(e), e
        return
    raise AssertionError("it joined without rank 2")


def _monitored(rank, n, place):
    join("kolo", rank, n, place)
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    if rank == 1:
        time.sleep(2)
        return
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
    except RuntimeError as e:
        assert ("Ranks 1 failed" if rank == 0 else "rank 0") in str(e), e
        return
    raise AssertionError("nobody was late")


@case
def late_and_missing_ranks_are_named():
    run(3, _late)
    run(3, _missing)
    if VERSION >= (2, 15):  # before, it is gloo's alone
        run(3, _monitored)


def _disagree(rank, n, place):
    join("kolo", rank, n, place)
    _told(lambda: dist.all_reduce(torch.ones(5 + rank)), "ranks disagree", "n=5", "n=6")


def _refused(rank, n, place):
    join("kolo", rank, n, place)
    x, wide = torch.ones(4), torch.ones(4, 4)
    for error, text, call in (
            (ValueError, "contiguous", lambda: dist.all_reduce(wide.t()[1:3])),
            (ValueError, "AVG", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG)),
            (ValueError, "ReduceOp", lambda: dist.all_reduce(x, dist.ReduceOp.BXOR)),
            ((ValueError, TypeError), "", lambda: dist.all_gather_into_tensor(torch.ones(8, dtype=torch.float64), x)),
            (ValueError, "", lambda: dist.all_gather_into_tensor(torch.ones(9), x)),
            ((ValueError, RuntimeError), "", lambda: dist.reduce_scatter_tensor(torch.ones(3), x)),
            ((ValueError, RuntimeError), "", lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3))),
            (ValueError, "", lambda: dist.broadcast(x, 7))):
        try:
            call()
        except error as e:
            assert text in str(e), e
        else:
            raise AssertionError(("not refused", text))
    # Rank 0's tensor is too short for the index of rank 1: what torch raises on the group's thread is raised here.
    sparse = torch.sparse_coo_tensor(torch.tensor([[2 + 2 * rank]]), torch.ones(1), (3 + 2 * rank,))
    work = dist.all_reduce(sparse, async_op=True)
    try:
        work.wait()
    except RuntimeError:
        assert rank == 0
    else:
        assert rank == 1
    dist.all_reduce(x)  # the group still works
    assert x[0] == n
    dist.destroy_process_group()


@case
def mistakes_are_told():
    run(2, _disagree)
    run(2, _refused)


EXITS = """
import os, sys
import torch, torch.distributed as dist
import kolo_torch
rank, place, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("kolo", init_method=f"file://{place}/store", rank=rank, world_size=2)
dist.all_reduce(torch.ones(5), async_op=True).wait()
work = dist.isend(torch.ones(3), 1) if rank == 0 else None
if how == "fork":
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
if how == "destroy":
    dist.destroy_process_group()
if how.startswith("irecv"):
    work = dist.irecv(torch.ones(3), 1 - rank, tag=5)
    dist.isend(torch.ones(1 << 20), 1 - rank, tag=6)
if how == "irecv and destroy":
    dist.destroy_process_group()
if how == "pending":
    work = dist.all_reduce(torch.ones(5), async_op=True) if rank == 0 else None
"""


@case
def exits_and_forks_are_quiet():
    for how in ("exit", "fork", "destroy", "irecv", "irecv and destroy", "pending"):
        with tempfile.TemporaryDirectory() as place:
            all = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", EXITS, str(r), place, how], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True) for r in range(2)]
            for rank, p in enumerate(all):
                began = time.monotonic()
                said, _ = p.communicate(timeout=60)
                assert rank == 0 or time.monotonic() - began < 10, how
                ours = [line for line in said.splitlines() if re.search("kolo|terminate|Error|Traceback", line)]
                assert p.returncode == 0 and not ours, (how, rank, p.returncode, said)


# ---- At random

TYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT]


def _numbers(g, n, type):
    return torch.randint(0, 3, (n,), generator=g).to(type)


def _step(choose, seed, rank, ranks, groups, run_async):
    """One operation on both groups. `choose` is the same on all ranks of the group."""
    me, n = ranks.index(rank), len(ranks)
    g = torch.Generator().manual_seed(seed * 100 + rank)
    type, op, root = choose.choice(TYPES), choose.choice(OPS), choose.randrange(n)
    size = choose.choice([0, 1, 5, 1000, 70000])
    kind = choose.choice(["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_list", "all_to_all", "gather", "scatter", "barrier",
                          "messages", "coalesced"] + ["reduce_scatter"] * (VERSION >= (2, 8)))  # gloo has it from there on
    x = _numbers(g, size, type)
    results = []
    for group in groups:
        k = {"group": group}
        a = dict(k, async_op=run_async)
        y, w = x.clone(), None
        if kind == "all_reduce":
            w = dist.all_reduce(y, op, **a)
        elif kind == "broadcast":
            w = dist.broadcast(y, ranks[root], **a)
        elif kind == "reduce":
            w = dist.reduce(y, ranks[root], op, **a)
            if w is not None:
                w.wait()
            y = y if me == root else torch.empty(0)
            w = None
        elif kind == "all_gather":
            y = torch.zeros(size * n, dtype=type)
            w = dist.all_gather_into_tensor(y, x, **a)
        elif kind == "all_gather_list":
            y = [torch.zeros(size, dtype=type) for _ in ranks]
            w = dist.all_gather(y, x, **a)
        elif kind == "reduce_scatter":
            y, whole = torch.zeros(size, dtype=type), _numbers(torch.Generator().manual_seed(seed + rank), size * n, type)
            w = dist.reduce_scatter_tensor(y, whole, op, **a)
        elif kind == "all_to_all":
            rows = [[(seed + i * j) % 4 for j in range(n)] for i in range(n)]
            outs = [rows[i][me] for i in range(n)]
            y = torch.zeros(sum(outs), 3, dtype=type)
            w = dist.all_to_all_single(y, _numbers(torch.Generator().manual_seed(seed + rank), sum(rows[me]) * 3, type).view(-1, 3), outs,
                                       rows[me], **a)
        elif kind == "gather":
            y = [torch.zeros(size, dtype=type) for _ in ranks] if me == root else None
            w = dist.gather(x, y, ranks[root], **a)
        elif kind == "scatter":
            w = dist.scatter(y, [x + r for r in range(n)] if me == root else None, ranks[root], **a)
        elif kind == "barrier":
            w = dist.barrier(**a)
        elif kind == "coalesced":
            y = [x.clone(), x.clone()]
            w = dist.all_reduce_coalesced(y, op, **a)
        else:
            y = [torch.zeros(size + t, dtype=type) for t in range(2)]
            sent = [_numbers(torch.Generator().manual_seed(seed + t), size + t, type) for t in range(2)]
            works = [dist.isend(sent[t], ranks[(me + 1) % n], tag=t, **k) for t in range(2) if n > 1]
            works += [dist.irecv(y[t], ranks[me - 1], tag=t, **k) for t in (1, 0) if n > 1]
            for work in works:
                work.wait()
        if w is not None:
            w.wait()
        results.append(y)
    one, other = (r if isinstance(r, list) else [r] for r in results)
    if results[0] is not None:
        assert all(torch.equal(p, q) for p, q in zip(one, other)), (kind, type, op, size, n)


def _program(rank, n, place, seed):
    join("gloo", rank, n, place)
    choose = random.Random(seed)
    threads = []
    failed = []
    for t in range(3):  # each thread has groups of its own
        own = []
        for _ in range(2):
            ranks = sorted(choose.sample(range(n), choose.randint(1, n)))
            own.append((ranks, [dist.new_group(ranks, backend=b) for b in ("gloo", "kolo")]))
        def work(own=own, thread_seed=seed * 10 + t):
            order = random.Random(thread_seed)
            try:
                for k in range(25):
                    ranks, groups = own[order.randrange(2)]
                    step_seed = order.randrange(1 << 30)
                    if rank in ranks:
                        _step(random.Random(step_seed), step_seed, rank, ranks, groups, order.random() < 0.5)
                    else:
                        order.random()
            except BaseException:
                traceback.print_exc()
                failed.append(thread_seed)
        threads.append(threading.Thread(target=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    dist.barrier()
    dist.destroy_process_group()


@case
def random_programs_do_what_they_do_on_gloo():
    for k in range(50 if LONG else 8):
        seed = SEED * 100 + k
        try:
            run(2 + k % 3, _program, seed)
        except AssertionError as e:
            raise AssertionError(f"program {seed}: {e}") from e


if __name__ == "__main__":
    main(CASES)
