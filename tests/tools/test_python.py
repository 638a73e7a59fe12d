"""pykolo: all operations on 1 to 4 ranks with Python's own arrays, with numpy, torch and what speaks DLPack where these are there;
queues, events, groups, errors, and mistakes that are told before anything moves."""
import os
import textwrap

from tap import B, Skip, main, run, test

HEAD = """
import array, os, sys, threading
import pykolo
comm = pykolo.Communicator()
N, me = comm.nranks, comm.rank
def ints(*x): return array.array("i", x)
def say(text): sys.stdout.write(text + chr(10))
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": "tools/python", "PYTHONDONTWRITEBYTECODE": "1",
               "PYKOLO_LIBRARY": os.path.abspath(f"{B}/libkolo.so.0")}


def ranks(n, program, head=HEAD, python="python3"):
    """Runs a program on n ranks; what it prints, line by line, sorted."""
    done = run(f"{B}/ringrun", "-n", str(n), python, "-W", "error", "-c", head + textwrap.dedent(program), env=ENVIRONMENT)
    if "No module named" in done.stderr:
        raise Skip(done.stderr.splitlines()[-1])
    return done


def good(n, program, **kwargs):
    done = ranks(n, program, **kwargs)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return sorted(done.stdout.splitlines())


@test
def messages_with_tags_match():
    lines = good(3, """
        with pykolo.Mailbox(comm) as box:
            if me:
                requests = [box.isend(ints(me * 10 + t), 0, t) for t in range(3)]
                for r in requests:
                    assert r.wait() == (0, requests.index(r), 1)
            else:
                x = ints(0, 0)
                assert box.recv(x, 2, 1) == (2, 1, 1) and x[0] == 21
                got = [box.recv(x, tag=2) for _ in range(2)]
                assert sorted(got) == [(1, 2, 1), (2, 2, 1)]
                r = box.irecv(x, 1)
                while not r.test():
                    pass
                assert r.wait() == (1, 0, 1) and x[0] == 10
                r = box.irecv(x, tag=9)
                r.cancel()
                try: r.wait()
                except pykolo.KoloError as e: say(e.status.name)
                try: box.isend(x, 7)
                except pykolo.KoloError as e: say(str(e))
                with pykolo.Queue() as q:
                    assert box.recv(x, queue=q) is None
                    q.wait()
                assert x[0] in (11, 20) and box.memory > 0
            comm.barrier()
        """)
    assert "ABORTED" in lines, lines
    assert any("peer 7: want 0 to 2" in line for line in lines), lines


@test
def every_operation_does_what_it_says():
    for n in (1, 2, 4):
        good(n, """
            x = ints(me, 2, -me)
            comm.all_reduce(x)
            assert list(x) == [N * (N - 1) // 2, 2 * N, -N * (N - 1) // 2]
            y = ints(0)
            comm.all_reduce(ints(1 << me), y, op="bor")
            assert y[0] == (1 << N) - 1
            comm.all_reduce(ints(me), y, op=pykolo.Op.LAND)
            assert y[0] == 0
            comm.reduce(ints(me), y if me == N - 1 else None, op="max", root=N - 1)
            assert me != N - 1 or y[0] == N - 1
            y = ints(7 if me == 0 else 0)
            comm.broadcast(y)
            assert y[0] == 7
            comm.broadcast(ints(9) if me == 0 else None, y)
            assert y[0] == 9
            all = ints(*[0] * 2 * N)
            comm.all_gather(ints(me, me), all)
            assert list(all) == [r for r in range(N) for _ in range(2)]
            comm.reduce_scatter(all, y := ints(0, 0))
            assert list(y) == [N * me, N * me]
            counts = [r + 1 for r in range(N)]
            some = ints(*[0] * sum(counts))
            comm.all_gather(ints(*[me] * (me + 1)), some, counts=counts)
            assert list(some) == [r for r in range(N) for _ in range(r + 1)]
            comm.reduce_scatter(some, y := ints(*[0] * (me + 1)), counts=counts)
            assert list(y) == [N * me] * (me + 1)
            comm.all_to_all(ints(*[10 * me + r for r in range(N)]), y := ints(*[0] * N))
            assert list(y) == [10 * r + me for r in range(N)]
            comm.all_to_all(ints(*[me] * sum(counts)), y := ints(*[0] * N * (me + 1)), send_counts=counts, recv_counts=[me + 1] * N)
            assert list(y) == [r for r in range(N) for _ in range(me + 1)]
            comm.gather(ints(me), all := ints(*[0] * N) if me == 0 else None)
            assert me or list(all) == list(range(N))
            comm.gather(ints(*[me] * (me + 1)), some := ints(*[0] * sum(counts)) if me == 0 else None, counts=counts)
            assert me or list(some) == [r for r in range(N) for _ in range(r + 1)]
            comm.scatter(all, y := ints(-1))
            assert y[0] == me
            comm.scatter(some, y := ints(*[0] * (me + 1)), counts=counts)
            assert list(y) == [me] * (me + 1)
            with comm.premul_sum(ints(me + 1)) as op:
                comm.all_reduce(y := ints(1), op=op)
            assert y[0] == N * (N + 1) // 2
            comm.barrier()
            half = comm.split(me % 2, -me)
            assert half.nranks == len(range(me % 2, N, 2)) and half.rank == (N - 1 - me) // 2
            assert comm.split(None) is None
            half.close()
            tree = comm.split(0, me, order="tree")
            assert tree.order == "tree"
            tree.close()
            assert comm.stats()["ops"] > 20 and comm.status == pykolo.Status.OK
            comm.close()
        """)


@test
def messages_go_singly_and_in_groups():
    good(3, """
        x, y = ints(me), ints(-1)
        if me == 0:
            comm.send(x, 1)
        elif me == 1:
            comm.recv(y, 0)
            assert y[0] == 0
        big, other = array.array("d", [me]) * 100000, array.array("d", [0]) * 100000
        with pykolo.group():
            comm.send(big, (me + 1) % N)
            comm.recv(other, (me - 1) % N)
        assert set(other) == {(me - 1) % N}
        comm.close()
    """)


@test
def queues_and_events_work_beside_the_program():
    good(2, """
        a, b = ints(*range(1000)), array.array("f", [1.5]) * 1000
        with pykolo.Queue() as q, pykolo.Queue() as other:
            comm.all_reduce(a, queue=q)
            event = pykolo.Event(q)
            other.wait_event(event)
            comm.all_reduce(b, op="prod", queue=other)
            # Nobody else has this one.
            comm.all_gather(array.array("b", [me] * 10), gathered := array.array("b", [0] * 20), queue=q)
            event.wait()
            assert event.query() and a[3] == 6
            q.wait(), other.wait()
            assert b[0] == 2.25 and list(gathered) == [0] * 10 + [1] * 10
        found = []
        thread = threading.Thread(target=lambda: (comm.barrier(), found.append(1)))
        thread.start()
        thread.join()
        assert found
        comm.close()
    """)


@test
def memory_that_others_reach_is_a_buffer():
    good(2, """
        memory = comm.alloc(4000)
        x = memory.view.cast("i")
        x[5] = me + 1
        comm.all_reduce(x)
        assert x[5] == 3
        x.release()
        memory.free()
        comm.close()
    """)


@test
def numpy_arrays_are_taken_by_their_types():
    good(2, """
        import numpy as np
        for name in "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split():
            x = np.full((3, 4), me + 1, name)
            comm.all_reduce(x)
            assert (x == 3).all(), name
        z = np.full(5, 1 + 2j * me)
        comm.all_reduce(z)
        assert (z == 2 + 2j).all()
        flags = np.array([me == 0, True])
        comm.all_reduce(flags, op="land")
        assert flags.tolist() == [False, True]
        half = np.full(4, 0x3f80, "u2") # 1.0 as bf16
        comm.all_reduce(half, type="bf16")
        assert (half == 0x4000).all()
        for wrong in (x[:, ::2], x.T, np.zeros(3, ">f4"), np.zeros(3, "M8[s]")):
            try:
                comm.all_reduce(wrong)
                raise SystemExit(f"{wrong!r} was taken")
            except (TypeError, ValueError):
                pass
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        try:
            comm.all_reduce(fixed)
            raise SystemExit("a read-only array was written")
        except ValueError as e:
            assert "read-only" in str(e)
        comm.close()
    """, python="/usr/bin/python3")


@test
def tensors_are_taken_by_dlpack():
    python = os.environ.get("T_PYTHON", "/usr/bin/python3")
    good(2, """
        import torch
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int16, torch.int64, torch.uint8, torch.complex64):
            x = torch.full((2, 3), me + 1, dtype=dtype)
            comm.all_reduce(x)
            assert bool((x == 3).all()), dtype
        y = torch.zeros(4)
        comm.all_gather(torch.full((4,), float(me))[1:3], y)
        assert y.tolist() == [0, 0, 1, 1]
        comm.close()
    """, python=python)


@test
def mistakes_are_told_before_anything_moves():
    told = good(2, """
        def refused(kind, word, function, *args, **kwargs):
            try:
                function(*args, **kwargs)
            except kind as e:
                assert word in str(e), str(e)
            else:
                raise SystemExit(f"{word}: was taken")
        x, y = ints(1, 2), ints(0)
        refused(ValueError, "src has 2 elements and dst 1", comm.all_reduce, x, y)
        refused(ValueError, "want 1 : 2", comm.all_gather, y, y)
        refused(ValueError, "no equal parts", comm.all_to_all, ints(1, 2, 3), ints(1, 2, 3))
        refused(ValueError, "counts are [1, 2]", comm.all_gather, y, y, counts=[1, 2])
        refused(ValueError, "give both", comm.all_to_all, x, x, send_counts=[1, 1])
        refused(TypeError, "src has elements of I32, and dst of F32", comm.all_reduce, y, array.array("f", [1]))
        refused(ValueError, "read-only", comm.all_reduce, b"1234")
        refused(TypeError, "memoryview", comm.all_reduce, 3)
        refused(KeyError, "MEDIAN", comm.all_reduce, x, op="median")
        refused(KeyError, "F12", comm.all_reduce, x, type="f12")
        refused(pykolo.KoloError, "root 5: want 0 to 1", comm.broadcast, x, root=5)
        refused(pykolo.KoloError, "f32 has no op band", comm.all_reduce, array.array("f", [1]), op="band")
        refused(pykolo.KoloError, "not 0", comm.set_timeout, 0)
        comm.set_timeout(30)
        comm.all_reduce(x)
        assert list(x) == [2, 4]
        say(pykolo.version())
        comm.close()
    """)
    assert len(told) == 2 and told[0].count(".") == 2, told


@test
def an_error_names_the_rank_and_has_a_status():
    done = ranks(2, """
        x = ints(1)
        try:
            comm.all_reduce(x) if me == 0 else comm.all_reduce(ints(1, 2))
        except pykolo.KoloError as e:
            assert e.status == pykolo.Status.MISMATCH and "ranks disagree" in str(e), str(e)
            say("told")
        assert comm.status == pykolo.Status.MISMATCH
        comm.close()
    """)
    assert done.returncode == 0 and done.stdout == "told\ntold\n", done


@test
def ranks_are_threads_of_one_process_too():
    done = run("python3", "-W", "error", "-c", textwrap.dedent("""
        import array, threading, pykolo
        id, lines, sums = pykolo.make_id(), [], []
        def rank(r):
            with pykolo.Communicator(id=id, rank=r, nranks=3, log=lambda level, line: lines.append(line), log_level=3) as comm:
                x = array.array("q", [r])
                comm.all_reduce(x)
                sums.append(x[0])
        threads = [threading.Thread(target=rank, args=(r,)) for r in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert sums == [3, 3, 3] and lines, (sums, lines)
    """), env=ENVIRONMENT)
    assert done.returncode == 0, done


main()
