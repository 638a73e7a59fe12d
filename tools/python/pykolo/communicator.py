"""Communicators: one rank's view of a ring of ranks, and all operations on it."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

from .library import INT, LOG, POINTER, SIZE, Attributes, Id, Op, Stats, Status, Type, check, library
from .memory import Elements, elements, writable
from .queues import Queue, keep_in_group

Kind = Union[Type, str, None]


def make_id() -> bytes:
    """128 bytes with which ranks find each other (kolo_id_create): this process serves them until all have joined."""
    made = Id()
    check(library().kolo_id_create(ctypes.byref(made)))
    return bytes(made.bytes)


def _op(op: Op | str | int) -> int:
    return Op[op.upper()] if isinstance(op, str) else int(op)


def _pointer(e: Elements | None) -> int | None:
    return e.address if e is not None else None


class Communicator:
    """Joins when it is made, leaves with `close` or at the end of `with`.

    Without arguments the launcher's environment gives rank and meeting point; else give an id (make_id), rank and nranks. The
    others are as in struct kolo_comm_attr. `log` gets (level, line).

    Buffers are numpy arrays, DLPack, CUDA arrays or Python's own buffers, whose elements lie one after the other. `type` names
    their elements if the object does not ("bf16", "f8e4m3"). Calls block, or with a queue return at once. One thread at a time
    uses a communicator, except abort, status and set_timeout."""

    def __init__(self, *, id: bytes | None = None, rank: int = 0, nranks: int = 0, timeout: int = 0, nslots: int = 0, slot_len: int = 0,
                 transport: str | None = None, algorithm: str | None = None, order: str | None = None, group: int | None = None,
                 log: Callable[[int, str], None] | None = None, log_level: int = 0, _handle: POINTER | None = None) -> None:
        self._handle, self._log = _handle if _handle is not None else POINTER(), LOG()
        if log is not None:
            self._log = LOG(lambda _, level, line: log(level, line.decode(errors="replace")))
        if _handle is None:
            a = Attributes(rank=rank, nranks=nranks, timeout_s=timeout, nslots=nslots, slot_len=slot_len, log=self._log,
                           log_level=log_level, group=0 if group is None else group + 1)
            for name, text in (("transport", transport), ("algorithm", algorithm), ("order", order)):
                setattr(a, name, text.encode() if text is not None else None)
            if id is not None:
                a.id = ctypes.pointer(Id((ctypes.c_ubyte * 128)(*id)))
            check(library().kolo_comm_create(ctypes.byref(a), ctypes.byref(self._handle)))
        self.rank: int = library().kolo_comm_rank(self._handle)
        self.nranks: int = library().kolo_comm_nranks(self._handle)
        self.local_ranks: int = library().kolo_comm_local_ranks(self._handle)
        self.order: str = library().kolo_comm_order(self._handle).decode()

    # ---- The communicator itself

    def split(self, color: int | None, key: int = 0, order: str | None = None) -> Communicator | None:
        """A communicator of the ranks with the same color, in the order of their keys; None for color None. A collective."""
        made = POINTER()
        wish = order.encode() if order is not None else None
        check(library().kolo_comm_split_order(self._handle, -1 if color is None else color, key, wish, ctypes.byref(made)))
        return Communicator(_handle=made) if made else None

    def close(self) -> None:
        """Leaves the ring, after this rank's queued operations."""
        if self._handle:
            library().kolo_comm_destroy(self._handle)
        self._handle = POINTER()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abort(self) -> None:
        """Ends all work on it, on every rank. Any thread may call it."""
        library().kolo_comm_abort(self._handle)

    @property
    def status(self) -> Status:
        """OK, or with what it failed."""
        return Status(library().kolo_comm_status(self._handle))

    def set_timeout(self, seconds: int) -> None:
        """Of this rank; below 0: never."""
        check(library().kolo_timeout_set(self._handle, seconds))

    def stats(self) -> dict[str, Any]:
        """The fields of struct kolo_stats."""
        s = Stats()
        check(library().kolo_comm_stats(self._handle, ctypes.byref(s)))
        return _fields(s)

    def alloc(self, length: int) -> Memory:
        """So many bytes that other ranks reach directly (kolo_alloc). A collective."""
        return Memory(self, length)

    @contextlib.contextmanager
    def premul_sum(self, scalar: Any, type: Kind = None) -> Iterator[int]:
        """An op that adds each rank's elements times a scalar: an object with one element of their type."""
        e, op = elements(scalar, type), INT()
        if e.n != 1:
            raise ValueError(f"a factor is one element, not {e.n}")
        check(library().kolo_op_create_premul_sum(self._handle, e.address, e.type, ctypes.byref(op)))
        try:
            yield op.value
        finally:
            library().kolo_op_destroy(self._handle, op)

    # ---- Collectives: every rank calls the same one

    def all_reduce(self, src: Any, dst: Any = None, op: Op | str | int = Op.SUM, *, type: Kind = None, queue: Queue | None = None) -> None:
        """dst on every rank = src combined over all ranks. Without dst in place."""
        s, d = self._pair(src, dst, type)
        self._same(s, d, 1, 1)
        self._do(library().kolo_all_reduce, queue, (s, d), s.address, d.address, s.n, s.type, self._for(s, op))

    def reduce(self, src: Any, dst: Any = None, op: Op | str | int = Op.SUM, root: int = 0, *, type: Kind = None,
               queue: Queue | None = None) -> None:
        """all_reduce whose dst is written on `root` only. Without dst in place."""
        s, d = self._pair(src, dst, type, self.rank == root)
        if self.rank == root:
            self._same(s, d, 1, 1)
        self._do(library().kolo_reduce, queue, (s, d), s.address, d.address, s.n, s.type, self._for(s, op), root)

    def broadcast(self, src: Any, dst: Any = None, root: int = 0, *, type: Kind = None, queue: Queue | None = None) -> None:
        """dst on every rank = src of `root`; elsewhere src may be None. Without dst in place."""
        s, d = self._pair(src if src is not None else dst, dst, type, dst is not None or self.rank != root)
        self._same(s, d, 1, 1)
        self._do(library().kolo_broadcast, queue, (s, d), s.address, d.address, d.n, d.type, root)

    def reduce_scatter(self, src: Any, dst: Any, op: Op | str | int = Op.SUM, *, counts: Sequence[int] | None = None, type: Kind = None,
                       queue: Queue | None = None) -> None:
        """dst = block number `rank` of src combined over all ranks: blocks as long as dst, or by counts."""
        s, d = self._pair(src, dst, type)
        if counts is None:
            self._same(s, d, 1, self.nranks)
            self._do(library().kolo_reduce_scatter, queue, (s, d), s.address, d.address, d.n, s.type, self._for(s, op))
        else:
            self._parts(s, counts, "src")
            self._enough(d, counts[self.rank], "dst")
            self._do(library().kolo_reduce_scatter_v, queue, (s, d), s.address, d.address, self._counts(counts), s.type,
                     self._for(s, op))

    def all_gather(self, src: Any, dst: Any, *, counts: Sequence[int] | None = None, type: Kind = None, queue: Queue | None = None) -> None:
        """dst = src of all ranks, one after the other: equally long, or by counts."""
        s, d = self._pair(src, dst, type)
        if counts is None:
            self._same(s, d, self.nranks, 1)
            self._do(library().kolo_all_gather, queue, (s, d), s.address, d.address, s.n, s.type)
        else:
            self._parts(d, counts, "dst")
            self._enough(s, counts[self.rank], "src")
            self._do(library().kolo_all_gather_v, queue, (s, d), s.address, d.address, self._counts(counts), s.type)

    def all_to_all(self, src: Any, dst: Any, *, send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
                   type: Kind = None, queue: Queue | None = None) -> None:
        """Part r of dst = part `rank` of src on rank r: equal parts, or by both counts."""
        s, d = self._pair(src, dst, type)
        if send_counts is None and recv_counts is None:
            self._same(s, d, 1, 1)
            if s.n % self.nranks:
                raise ValueError(f"{s.n} elements are no equal parts for {self.nranks} ranks")
            self._do(library().kolo_all_to_all, queue, (s, d), s.address, d.address, s.n // self.nranks, s.type)
            return
        if send_counts is None or recv_counts is None:
            raise ValueError("give both send_counts and recv_counts, or none")
        self._parts(s, send_counts, "src")
        self._parts(d, recv_counts, "dst")
        self._do(library().kolo_all_to_all_v, queue, (s, d), s.address, self._counts(send_counts), d.address, self._counts(recv_counts),
                 s.type)

    def gather(self, src: Any, dst: Any = None, root: int = 0, *, counts: Sequence[int] | None = None, type: Kind = None,
               queue: Queue | None = None) -> None:
        """dst on `root` = src of all ranks, one after the other. Other ranks need no dst."""
        s = elements(src, type)
        d = writable(elements(dst, type), "dst") if self.rank == root else None
        if d is not None and counts is None:
            self._same(s, d, self.nranks, 1)
        if d is not None and counts is not None:
            self._parts(d, counts, "dst")
        if counts is None:
            self._do(library().kolo_gather, queue, (s, d), s.address, _pointer(d), s.n, s.type, root)
        else:
            self._do(library().kolo_gather_v, queue, (s, d), s.address, s.n, _pointer(d), self._counts(counts), s.type, root)

    def scatter(self, src: Any, dst: Any, root: int = 0, *, counts: Sequence[int] | None = None, type: Kind = None,
                queue: Queue | None = None) -> None:
        """dst = part `rank` of src on `root`. Other ranks need no src: None."""
        d = writable(elements(dst, type), "dst")
        s = elements(src, type) if self.rank == root else None
        if s is not None and counts is None:
            self._same(s, d, 1, self.nranks)
        if s is not None and counts is not None:
            self._parts(s, counts, "src")
        if counts is None:
            self._do(library().kolo_scatter, queue, (s, d), _pointer(s), d.address, d.n, d.type, root)
        else:
            self._do(library().kolo_scatter_v, queue, (s, d), _pointer(s), self._counts(counts), d.address, d.n, d.type, root)

    def barrier(self, *, queue: Queue | None = None) -> None:
        """Waits for all ranks."""
        self._do(library().kolo_barrier, queue, ())

    # ---- Messages

    def send(self, src: Any, to: int, *, type: Kind = None, queue: Queue | None = None) -> None:
        """To a rank, which must recv as many elements of this type."""
        s = elements(src, type)
        self._do(library().kolo_send, queue, (s,), s.address, s.n, s.type, to)

    def recv(self, dst: Any, source: int, *, type: Kind = None, queue: Queue | None = None) -> None:
        """The next message from a rank."""
        d = writable(elements(dst, type), "dst")
        self._do(library().kolo_recv, queue, (d,), d.address, d.n, d.type, source)

    # ---- What they share

    def _do(self, function: Any, queue: Queue | None, buffers: tuple[Elements | None, ...], *arguments: Any) -> None:
        if queue is not None:
            queue._keep(*buffers)
        keep_in_group(*buffers, *arguments)
        check(function(self._handle, *arguments, queue._handle if queue is not None else None))

    @staticmethod
    def _pair(src: Any, dst: Any, type: Kind, writes: bool = True) -> tuple[Elements, Elements]:
        s = elements(src, type)
        d = elements(dst, type) if dst is not None else s
        if writes:
            writable(d, "dst" if dst is not None else "src")
        if s.type != d.type or s.complex != d.complex:
            raise TypeError(f"src has elements of {s.type.name}, and dst of {d.type.name}")
        return s, d

    @staticmethod
    def _same(s: Elements, d: Elements, times_src: int, times_dst: int) -> None:
        if s.n * times_src != d.n * times_dst:
            raise ValueError(f"src has {s.n} elements and dst {d.n}: want {times_dst} : {times_src}")

    @staticmethod
    def _enough(e: Elements, n: int, name: str) -> None:
        if e.n != n:
            raise ValueError(f"{name} has {e.n} elements, and counts say {n}")

    def _parts(self, e: Elements, counts: Sequence[int], name: str) -> None:
        if len(counts) != self.nranks or sum(counts) != e.n:
            raise ValueError(f"{name} has {e.n} elements, and counts are {list(counts)} for {self.nranks} ranks")

    @staticmethod
    def _counts(counts: Sequence[int]) -> Any:
        return (SIZE * len(counts))(*counts)

    @staticmethod
    def _for(s: Elements, op: Op | str | int) -> int:
        found = _op(op)
        if s.complex and found not in (Op.SUM, Op.AVG):
            raise TypeError(f"complex numbers have SUM and AVG, not op {op!r}")
        return found


def _fields(structure: ctypes.Structure) -> dict[str, Any]:
    found = {}
    for name, *_ in structure._fields_:
        value = getattr(structure, name)
        if name != "reserved":
            found[name] = _fields(value) if isinstance(value, ctypes.Structure) else value.decode() if isinstance(value, bytes) else value
    return found


class Memory:
    """Memory from kolo_alloc, as a writable buffer of bytes: numpy.frombuffer(memory.view, dtype) makes an array of it. All ranks free
    it in the same place between their collectives."""

    def __init__(self, comm: Communicator, length: int) -> None:
        self._comm, self._address = comm, POINTER()
        check(library().kolo_alloc(comm._handle, length, ctypes.byref(self._address)))
        self.view = memoryview((ctypes.c_char * length).from_address(self._address.value or 0)).cast("B")

    def free(self) -> None:
        """No array may use it any more."""
        if self._address:
            check(library().kolo_free(self._comm._handle, self._address))
        self._address = POINTER()
