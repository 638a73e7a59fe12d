"""Process groups with CUDA tensors: what comes before and after an operation on streams, messages, captures, deaths, refusals.

On a machine without a GPU they are made of threads, which have no kernels: tensors come from the CPU and are looked at there."""
import os
import random
import signal
import time
from datetime import timedelta

from ranks import BACKEND, dist, gpu, here, join, main, run, there, torch

CASES = []
BIG = 1 << 20


def case(function):
    CASES.append(function)
    return function


def full(n, value):
    return there(torch.full((n, ), float(value)))


def holds(tensor, value):
    return bool((here(tensor) == value).all())


def delayed(value, n=BIG):
    """A tensor that the current stream fills with it after some time."""
    x, late = there(torch.full((n, ), -1.)), torch.full((n, ), float(value)).pin_memory()
    wrong = torch.full((n, ), -2.).pin_memory()
    for _ in range(20):
        x.copy_(wrong, non_blocking=True)
    x.copy_(late, non_blocking=True)
    return x, late, wrong


def _order(rank, n, place):
    join(BACKEND, rank, n, place)
    total = n * (n + 1) / 2
    for later in (False, True):
        x, *kept = delayed(rank + 1)
        work = dist.all_reduce(x, async_op=later)
        if later:
            work.wait()
        y = torch.empty_like(x).copy_(x)  # on the current stream, behind it
        assert holds(y, total), y
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x, *kept = delayed(rank + 1)
            dist.all_reduce(x)
            z = torch.empty_like(x).copy_(x)
        side.synchronize()
        assert holds(z, total), z
    works, xs = [], [full(1000 * k, rank + k) for k in range(6)]
    for x in xs:
        works.append(dist.all_reduce(x, async_op=True))
    for work in reversed(works):
        work.wait()
        assert work.result()[0].device.type == "cuda"
    assert all(holds(x, n * (n - 1) / 2 + n * k) for k, x in enumerate(xs))
    work = dist.all_reduce(x := full(5, 1), async_op=True)
    assert work.wait(timedelta(seconds=20)) and work.is_completed() and holds(x, n)
    x, *kept = delayed(rank + 1)
    for_it = dist.all_reduce(x, async_op=True)
    del x, kept  # torch must keep them until the stream has done it
    again = [full(BIG, 5) for _ in range(4)]
    value = for_it.get_future().wait()[0]
    assert holds(value, total) and all(holds(x, 5) for x in again)
    if BACKEND == "kolo":  # tensors of the CPU are of the same group
        dist.all_reduce(c := torch.ones(3), async_op=True).wait()
        assert c[0] == n
    dist.barrier()
    dist.destroy_process_group()


@case
def operations_come_between_what_streams_do():
    run(2, _order)
    run(3, _order)


def _messages(rank, n, place):
    join(BACKEND, rank, n, place)
    after, before = (rank + 1) % n, (rank - 1) % n
    for size in (0, 7, BIG):
        y = torch.empty(size, device="cuda")
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, full(size, rank), after), dist.P2POp(dist.irecv, y, before)]):
            work.wait()
        assert holds(y, before)
        x = full(size, rank)
        if rank == 0:  # one after the other, round the ring
            dist.send(x, after)
            dist.recv(y, before)
        else:
            dist.recv(y, before)
            dist.send(x, after)
        assert holds(y, before)
    works = [dist.isend(full(3, k), after) for k in range(3)]  # short ones need nobody yet
    ys = [torch.empty(3, device="cuda") for _ in range(3)]
    works += [dist.irecv(y, before) for y in ys]
    for work in works:
        work.wait()
    assert all(holds(y, k) for k, y in enumerate(ys))
    everyone = [dist.P2POp(dist.isend, full(BIG, 10 * rank + r), r) for r in range(n) if r != rank]
    got = {r: torch.empty(BIG, device="cuda") for r in range(n) if r != rank}
    random.Random(rank).shuffle(everyone)
    mixed = [dist.P2POp(dist.irecv, y, r) for r, y in got.items()]
    for work in dist.batch_isend_irecv(everyone + mixed):
        work.wait()
    assert all(holds(y, 10 * r + rank) for r, y in got.items())
    dist.destroy_process_group()


@case
def messages():
    run(2, _messages)
    run(4, _messages)


def _together(rank, n, place):
    join(BACKEND, rank, n, place, device_id=gpu(rank))
    xs = [full(k, rank) for k in (3, 0, 1000)]
    dist.all_reduce_coalesced(xs)
    assert all(holds(x, n * (n - 1) / 2) for x in xs)
    with dist._coalescing_manager(device=gpu(rank), async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x)
    manager.wait()
    assert all(holds(x, n * n * (n - 1) / 2) for x in xs)
    import torch.distributed._functional_collectives as functional

    assert holds(functional.all_reduce(full(3, 1), "sum", dist.group.WORLD), n)
    whole = functional.all_gather_tensor(full(1, rank), 0, dist.group.WORLD)
    assert here(whole).tolist() == list(range(n))
    rows = [[(3 * i + j) % 4 for j in range(n)] for i in range(n)]
    source = torch.cat([torch.full((rows[rank][r], 2), 10. * rank + r) for r in range(n)])
    target = torch.empty(sum(rows[r][rank] for r in range(n)), 2, device="cuda")
    dist.all_to_all_single(target, there(source), [rows[r][rank] for r in range(n)], rows[rank])
    assert torch.equal(here(target), torch.cat([torch.full((rows[r][rank], 2), 10. * r + rank) for r in range(n)]))
    for factor in (0.5, there(torch.tensor(0.5))):
        x = full(5, rank + 1)
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        assert holds(x, n * (n + 1) / 4), x
    half = dist.new_group(list(range(0, n, 2)))
    if rank % 2 == 0:
        dist.all_reduce(y := full(1, 1), group=half)
        assert holds(y, (n + 1) // 2)
    part = dist.split_group(split_ranks=[[0, 2], [1]])
    dist.all_reduce(y := full(2, dist.get_rank(part)), group=part)
    assert holds(y, 1 if rank != 1 else 0)
    dist.destroy_process_group()


@case
def coalescing_futures_splits_and_factors():
    run(3, _together)


def _shares(rank, n, place):
    torch.cuda.set_device(0)
    dist.init_process_group(BACKEND, init_method=f"file://{place}/store", rank=rank, world_size=n, device_id=torch.device("cuda", 0))
    for k in range(5):
        dist.all_reduce(x := full(BIG, rank))
        assert holds(x, n * (n - 1) / 2) and x.device == torch.device("cuda", 0)
    dist.destroy_process_group()


@case
def all_ranks_may_share_a_gpu():
    run(3, _shares)


def _again(rank, n, place):
    for k in range(5):
        join(BACKEND, rank, n, place, store=f"store-{k if BACKEND == 'nccl' else 0}")  # that one's ids are once for all
        dist.all_reduce(x := full(100, k), async_op=True)
        if k % 2:
            dist.all_reduce(x)  # nobody waits for it
        dist.destroy_process_group()


@case
def groups_come_and_go():
    run(2, _again)


def _captured(rank, n, place):
    join(BACKEND, rank, n, place)
    dist.all_reduce(full(5, 1))
    x, y = full(1000, 0), torch.empty(1000, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    values = [torch.full((1000, ), float(k + rank)).pin_memory() for k in range(3)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        dist.all_reduce(x)
        y.copy_(x)
        graph.capture_end()
    for k, value in enumerate(values):
        x.copy_(value)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.replay()
        stream.synchronize()
        assert holds(y, n * k + n * (n - 1) / 2), (k, y)
    dist.barrier()
    del graph
    dist.destroy_process_group()


@case
def a_capture_is_replayed():
    run(2, _captured)


def _told(call, *words):
    try:
        call()
    except (ValueError, RuntimeError) as e:  # DistBackendError is one
        assert all(word in str(e) for word in words), (words, str(e))
        return
    raise AssertionError(f"no error with {words}")


def _refused(rank, n, place):
    join(BACKEND, rank, n, place)
    x = full(3, 1)
    dist.all_reduce(x)
    _told(lambda: dist.send(x, 1 - rank, tag=3), "no tags", "CPU")
    _told(lambda: dist.recv(x), "name their sender")
    _told(lambda: dist.all_gather([torch.empty(3), torch.empty(3)], x), "same device", str(gpu(rank)), "cpu")
    if torch.cuda.device_count() > 5:
        _told(lambda: dist.all_reduce(torch.ones(3).to("cuda:5")), "one GPU", str(gpu(rank)), "cuda:5")
    _told(lambda: dist.all_reduce(there(torch.ones(4, 4)).t()), "contiguous")
    dist.all_reduce(x)
    assert holds(x, n * n)
    dist.destroy_process_group()


@case
def what_can_not_be_is_refused():
    run(2, _refused)


def _dies(rank, n, place):
    join(BACKEND, rank, n, place, timeout=timedelta(seconds=60))
    dist.all_reduce(x := full(3, 1))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()

    def until_told():
        while time.monotonic() < begun + 10:
            dist.all_reduce(x)
            torch.cuda.synchronize()
    _told(until_told, "rank 1")
    assert time.monotonic() - begun < 2, time.monotonic() - begun
    _told(lambda: dist.all_reduce(x), "rank 1")  # and again
    dist.destroy_process_group()


def _late(rank, n, place):
    join(BACKEND, rank, n, place, timeout=timedelta(seconds=1))
    dist.all_reduce(x := full(3, 1))
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(4)
    else:
        work = dist.all_reduce(x, async_op=True)
        _told(lambda: work.wait(timedelta(seconds=10)), "rank 1")
    dist.destroy_process_group()


@case
def dead_and_late_ranks_are_named():
    run(2, _dies, may_die=(1, ))
    run(3, _dies, may_die=(1, ))
    run(2, _late)


if __name__ == "__main__":
    main(CASES)
