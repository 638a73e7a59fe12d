"""Every operation of c10d with every type of torch, by its definition: 0 and 5 elements and many, waited for at once and later.

Reductions and movements may be of CUDA tensors (T_DEVICE=cuda), and of another backend (T_BACKEND=nccl, on libnccl of Kolo)."""
import itertools

from ranks import BACKEND, DEVICE, dist, here, join, main, run, there, torch

CASES = []
VERSION = tuple(int(x) for x in torch.__version__.split(".")[:2])
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
SIZES = [0, 5, 70000]
if BACKEND == "nccl":  # ProcessGroupNCCL refuses the others
    INTS, COMPLEX, FLOAT8, UNSIGNED = [torch.uint8, torch.int8, torch.int32, torch.int64], [], FLOAT8[:2], []


def case(function):
    CASES.append(function)
    return function


def data(rank, n, type, salt=0):
    """The elements of a rank, known to all: small whole numbers, so that no order of additions matters."""
    x = (torch.arange(n) * 7 + rank * 3 + salt) % 3
    if type == torch.bool:
        return x > 0
    if type in COMPLEX:
        return torch.complex(x.double(), (x + rank).double()).to(type)
    return x.to(torch.float32).to(type) if type in FLOAT8 else x.to(type)


def same(a, b):
    if a.dtype in UNSIGNED or a.element_size() == 1:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    return torch.equal(a, b)


def each(types, function):
    """Calls function(type, size, done) with all types and sizes; done(work) waits, if that is still to do."""
    for type, size, later in itertools.product(types, SIZES, (False, True)):
        def done(call, **kwargs):
            work = call(async_op=later, **kwargs)
            if later:
                work.wait()
                assert work.is_completed() or DEVICE != "cpu"
        function(type, size, done)


def reduced(op, type, size, n, salt=0):
    xs = [data(r, size, type, salt) for r in range(n)]
    if type == torch.bool:
        if op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BOR):
            return torch.stack(xs).any(0)
        if op == dist.ReduceOp.BXOR:
            return torch.stack(xs).sum(0) % 2 == 1
        return torch.stack(xs).all(0)
    if op == dist.ReduceOp.AVG:
        return (torch.stack([x.to(torch.complex128 if type in COMPLEX else torch.float64) for x in xs]).sum(0) / n).to(type)
    if op == dist.ReduceOp.SUM:
        return torch.stack(xs).sum(0, dtype=type)
    if op == dist.ReduceOp.PRODUCT:
        return torch.stack(xs).prod(0, dtype=type)
    if op == dist.ReduceOp.MIN:
        return torch.stack(xs).amin(0) if size else xs[0]
    if op == dist.ReduceOp.MAX:
        return torch.stack(xs).amax(0) if size else xs[0]
    found = xs[0].clone()
    for x in xs[1:]:
        found = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}[op](found, x)
    return found


def ops_of(type):
    R = dist.ReduceOp
    if type in COMPLEX:
        return [R.SUM, R.AVG]
    ops = [R.SUM, R.PRODUCT, R.MIN, R.MAX]
    if type in FLOATS:
        return ops + [R.AVG]
    if BACKEND == "nccl":
        return ops
    return ops + [R.BAND, R.BOR, R.BXOR]


def close(a, b, op, type):
    if op == dist.ReduceOp.AVG:
        return torch.allclose(a.to(torch.complex128 if type in COMPLEX else torch.float64),
                              b.to(torch.complex128 if type in COMPLEX else torch.float64), rtol=2e-2 if a.element_size() == 2 else 1e-6)
    return same(a, b)


def _reductions(rank, n, place):
    join(BACKEND, rank, n, place)

    def one(type, size, done):
        for op in ops_of(type):
            x = there(data(rank, size, type))
            done(lambda **k: dist.all_reduce(x, op, **k))
            assert close(here(x), reduced(op, type, size, n), op, type), ("all_reduce", type, op, size)
            for root in range(n):
                x = there(data(rank, size, type))
                done(lambda **k: dist.reduce(x, root, op, **k))
                assert rank != root or close(here(x), reduced(op, type, size, n), op, type), ("reduce", type, op, size)
            whole = data(rank, size * n, type)
            part, parts = there(torch.zeros(size, dtype=type)), [there(x) for x in whole.chunk(n)] if size else [there(whole[:0])] * n
            whole = there(whole)
            done(lambda **k: dist.reduce_scatter_tensor(part, whole, op, **k))
            expected = reduced(op, type, size * n, n)[rank * size:(rank + 1) * size]
            assert close(here(part), expected, op, type), ("reduce_scatter_tensor", type, op, size)
            part = there(torch.zeros(size, dtype=type))
            done(lambda **k: dist.reduce_scatter(part, parts, op, **k))
            assert close(here(part), expected, op, type), ("reduce_scatter", type, op, size)
    each(FLOATS + INTS + [torch.bool] + COMPLEX, one)
    dist.destroy_process_group()


@case
def reductions():
    run(2, _reductions)
    run(3, _reductions)


def _movements(rank, n, place):
    join(BACKEND, rank, n, place)

    def one(type, size, done):
        x = there(data(rank, size, type))
        for root in range(n):
            y = there(data(rank, size, type))
            done(lambda **k: dist.broadcast(y, root, **k))
            assert same(here(y), data(root, size, type)), ("broadcast", type, size)
            outs = [torch.empty_like(x) for _ in range(n)] if rank == root else None
            done(lambda **k: dist.gather(x, outs, root, **k))
            assert rank != root or all(same(here(outs[r]), data(r, size, type)) for r in range(n)), ("gather", type, size)
            y = torch.empty_like(x)
            done(lambda **k: dist.scatter(y, [there(data(r, size, type, root)) for r in range(n)] if rank == root else None, root, **k))
            assert same(here(y), data(rank, size, type, root)), ("scatter", type, size)
        outs = [torch.empty_like(x) for _ in range(n)]
        done(lambda **k: dist.all_gather(outs, x, **k))
        assert all(same(here(outs[r]), data(r, size, type)) for r in range(n)), ("all_gather", type, size)
        for in_place in (False, True):  # as FSDP does
            whole = torch.empty(size * n, dtype=type, device=DEVICE)
            own = whole[rank * size:(rank + 1) * size] if in_place else x
            own.view(torch.uint8).copy_(x.view(torch.uint8)) if size and in_place else None
            done(lambda **k: dist.all_gather_into_tensor(whole, own, **k))
            assert all(same(here(whole)[r * size:(r + 1) * size], data(r, size, type)) for r in range(n)), ("into tensor", in_place, type, size)
        source, target = [there(data(rank, size + r, type)) for r in range(n)], [torch.empty(size + rank, dtype=type, device=DEVICE) for _ in range(n)]
        done(lambda **k: dist.all_to_all(target, source, **k))
        assert all(same(here(target[r]), data(r, size + rank, type)) for r in range(n)), ("all_to_all", type, size)
        outs = [torch.empty(size + r, dtype=type, device=DEVICE) for r in range(n)]  # uneven
        done(lambda **k: dist.all_gather(outs, there(data(rank, size + rank, type)), **k))
        assert all(same(here(outs[r]), data(r, size + r, type)) for r in range(n)), ("uneven all_gather", type, size)
    each(FLOATS + INTS + [torch.bool] + COMPLEX + FLOAT8 + UNSIGNED, one)
    dist.destroy_process_group()


@case
def movements():
    run(2, _movements)
    run(3, _movements)


def _lists(rank, n, place):
    join("kolo", rank, n, place)
    for size, at in itertools.product((5, 30000, 1 << 20), range(n)):  # how a rank's list lies in memory is its own affair
        room = torch.zeros(size * n)
        outs = list(room.chunk(n)) if rank == at else [torch.zeros(size) for _ in range(n)]
        dist.all_gather(outs, data(rank, size, torch.float32))
        assert all(torch.equal(outs[r], data(r, size, torch.float32)) for r in range(n)), ("all_gather", size, at)
        own = outs[rank].copy_(data(rank, size, torch.float32))  # in place
        dist.all_gather([x.zero_() if r != rank else x for r, x in enumerate(outs)], own)
        assert all(torch.equal(outs[r], data(r, size, torch.float32)) for r in range(n)), ("all_gather in place", size, at)
        outs[(rank + 1) % n].copy_(own)  # where another rank's goes
        dist.all_gather(outs, outs[(rank + 1) % n])
        assert all(torch.equal(outs[r], data(r, size, torch.float32)) for r in range(n)), ("all_gather over its input", size, at)
        part, ins = torch.zeros(size), data(rank, size * n, torch.float32).chunk(n)
        dist.reduce_scatter(part, list(ins) if rank == at else [x.clone() for x in ins])
        expected = reduced(dist.ReduceOp.SUM, torch.float32, size * n, n).chunk(n)[rank]
        assert torch.equal(part, expected), ("reduce_scatter", size, at)
        ins = list(ins) if rank == at else [x.clone() for x in ins]
        dist.reduce_scatter(ins[(rank + 1) % n], ins)
        assert torch.equal(ins[(rank + 1) % n], expected), ("reduce_scatter over its input", size, at)
    dist.destroy_process_group()


@case
def lists_of_tensors_lie_as_each_rank_likes():
    run(2, _lists)
    run(4, _lists)


def _splits(rank, n, place):
    join("kolo", rank, n, place)
    rows = [[(3 * i + j) % 4 for j in range(n)] for i in range(n)]
    source = torch.cat([torch.full((rows[rank][r], 2), 10. * rank + r) for r in range(n)])
    target = torch.empty(sum(rows[r][rank] for r in range(n)), 2)
    dist.all_to_all_single(target, source, [rows[r][rank] for r in range(n)], rows[rank])
    assert torch.equal(target, torch.cat([torch.full((rows[r][rank], 2), 10. * r + rank) for r in range(n)]))
    dist.all_to_all_single(target := torch.empty(n, 3), torch.arange(3. * n).view(n, 3) + 100 * rank)
    assert torch.equal(target, torch.stack([torch.arange(3.) + 3 * rank + 100 * r for r in range(n)]))
    part = torch.empty(1 + rank)  # uneven reduce_scatter
    dist.reduce_scatter(part, [torch.full((1 + r,), float(rank)) for r in range(n)])
    assert torch.equal(part, torch.full((1 + rank,), n * (n - 1) / 2))
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    before = image.clone()
    dist.all_reduce(image)
    dist.broadcast(before, 0)
    assert image.is_contiguous(memory_format=torch.channels_last)
    scalar = torch.tensor(2.5)
    dist.all_reduce(scalar)
    assert scalar.item() == 2.5 * n
    for factor in (0.5, torch.tensor(0.5)):
        x = torch.full((5,), float(rank + 1))
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        assert torch.equal(x, torch.full((5,), n * (n + 1) / 4)), x
    i = torch.tensor([[0, rank + 1], [1, 0]])
    sparse = torch.sparse_coo_tensor(i, torch.tensor([1., 2.]), (n + 1, 2))
    dense = sparse.to_dense()
    dist.all_reduce(sparse)
    dist.all_reduce(dense)
    assert torch.equal(sparse.to_dense(), dense)
    leaf = torch.ones(4, requires_grad=True)
    dist.all_reduce(leaf.detach())
    dist.all_reduce(leaf)
    assert torch.equal(leaf.detach(), torch.full((4,), float(n * n)))
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]
    dist.destroy_process_group()


@case
def uneven_parts_other_layouts_and_factors():
    run(2, _splits)
    run(4, _splits)


def _messages(rank, n, place):
    join("kolo", rank, n, place)
    after, before = (rank + 1) % n, (rank - 1) % n
    big = 1 << 20
    for size in (0, 7, big):  # crossing, the sends first
        x, y = torch.full((size,), float(rank)), torch.empty(size)
        send, recv = dist.isend(x, after), dist.irecv(y, before)
        recv.wait()
        send.wait()
        assert torch.equal(y, torch.full((size,), float(before))) and recv.is_completed() and recv._source_rank() == before
    works, ys = [], [torch.empty(100 * t) for t in range(5)]
    for t in range(5):
        works.append(dist.isend(torch.full((100 * t,), float(t)), after, tag=t))
    dist.barrier()  # messages are apart from it
    for t in reversed(range(5)):
        works.append(dist.irecv(ys[t], before, tag=t))
    for work in works:
        work.wait()
    assert all(torch.equal(ys[t], torch.full((100 * t,), float(t))) for t in range(5))
    if rank == 0:
        seen = sorted(dist.recv(torch.empty(3), tag=7) for _ in range(n - 1))
        assert seen == list(range(1, n)), seen
    else:
        dist.send(torch.ones(3), 0, tag=7)
    both = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((big,), float(rank)), after),
                                   dist.P2POp(dist.irecv, y := torch.empty(big), before)])
    for work in both:
        work.wait()
    assert torch.equal(y, torch.full((big,), float(before)))
    future = dist.irecv(y := torch.empty(3), before, tag=9).get_future()
    dist.send(torch.full((3,), 9.), after, tag=9)
    assert torch.equal(future.wait()[0], torch.full((3,), 9.))
    dist.isend(torch.full((big,), 5.), after, tag=11)  # nobody waits for it
    dist.recv(y := torch.empty(big), before, tag=11)
    assert y[0] == 5
    objects = [{"from": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"from": 0}]
    dist.barrier()
    dist.destroy_process_group()


@case
def messages():
    run(2, _messages)
    run(4, _messages)


def _together(rank, n, place):
    join("kolo", rank, n, place)
    xs = [torch.full((k,), float(rank)) for k in (3, 0, 1000)]
    dist.all_reduce_coalesced(xs)
    assert all(torch.equal(x, torch.full((len(x),), n * (n - 1) / 2)) for x in xs)
    ys = [torch.full((4,), float(rank)) for _ in range(3)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for y in ys:
            dist.all_reduce(y)
    manager.wait()
    assert all(torch.equal(y, torch.full((4,), n * (n - 1) / 2)) for y in ys)
    outs = [torch.empty(2 * n) for _ in range(2)]
    with dist._coalescing_manager():
        for out in outs:
            dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
    assert all(torch.equal(out.view(n, 2)[:, 0], torch.arange(float(n))) for out in outs)
    then = dist.all_reduce(x := torch.ones(3), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(then.wait(), torch.full((3,), 2. * n))
    import torch.distributed._functional_collectives as functional

    assert torch.equal(functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD), torch.full((3,), float(n)))
    assert torch.equal(functional.all_gather_tensor(torch.full((1,), float(rank)), 0, dist.group.WORLD), torch.arange(float(n)))
    assert functional.reduce_scatter_tensor(torch.ones(n), "sum", 0, dist.group.WORLD).item() == n
    half = dist.new_group(list(range(0, n, 2)))
    if rank % 2 == 0:
        dist.all_reduce(y := torch.ones(1), group=half)
        assert y.item() == (n + 1) // 2
    assert dist.get_backend() == "kolo" and dist.get_backend_config(dist.group.WORLD)
    dist.destroy_process_group()


@case
def coalescing_futures_and_functional_collectives():
    run(2, _together)
    run(3, _together)


def _split(rank, n, place):
    join("kolo", rank, n, place)
    for parts in ([[0, 2], [1, 3]], [[3, 0, 1]]):
        part = dist.split_group(split_ranks=parts)
        own = next((p for p in parts if rank in p), None)
        if own:
            x = torch.full((3,), float(dist.get_rank(part)))
            dist.all_reduce(x, group=part)
            assert x[0] == len(own) * (len(own) - 1) / 2
        else:
            assert part is dist.GroupMember.NON_GROUP_MEMBER
    dist.all_reduce(x := torch.ones(1))
    assert x.item() == n
    dist.destroy_process_group()


if VERSION >= (2, 15):  # before, a group needs a device for that
    @case
    def groups_are_split():
        run(4, _split)


if __name__ == "__main__":
    main(CASES)
