"""Messages with tags: mailboxes, and the requests of what is under way."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Union

from .communicator import Communicator
from .library import INT, POINTER, ReceivedFields, Type, check, library
from .memory import Elements, elements, writable
from .queues import Queue

ANY = -1
Kind = Union[Type, str, None]


class Received(NamedTuple):
    """What a receive has got."""

    source: int
    tag: int
    n: int


class Request:
    """A message under way. `wait` ends it; without that its mailbox does."""

    def __init__(self, mailbox: Mailbox, handle: POINTER, buffer: Elements) -> None:
        self._mailbox, self._handle, self._buffer = mailbox, handle, buffer
        mailbox._under_way.add(self)

    def test(self, milliseconds: int = 0) -> bool:
        """Moves messages on; whether this one is done. Blocks for so long at most."""
        done = INT()
        if milliseconds > 0:
            check(library().kolo_request_poll(self._handle, milliseconds, ctypes.byref(done)))
        else:
            check(library().kolo_request_test(self._handle, ctypes.byref(done)))
        return bool(done.value)

    def wait(self) -> Received:
        """Blocks until it is done, and raises its failure. Once only."""
        got, handle, self._handle = ReceivedFields(), self._handle, POINTER()
        try:
            check(library().kolo_request_wait(handle, ctypes.byref(got)))
        finally:
            self._mailbox._under_way.discard(self)
        return Received(got.peer, got.tag, got.n)

    def cancel(self) -> None:
        """Takes back a receive that nothing has matched; `wait` then raises ABORTED."""
        check(library().kolo_request_cancel(self._handle))


class Mailbox:
    """Messages with tags between the ranks of a communicator, apart from all else that it does (kolo_mailbox.h). Made by all of its
    ranks; ends with `close`, before the communicator, or at the end of `with`. Any thread may use it. Buffers are in host memory, and
    a receive takes up to as many elements as its buffer has."""

    def __init__(self, comm: Communicator) -> None:
        self._handle, self._comm = POINTER(), comm
        self._under_way: set[Request] = set()
        check(library().kolo_mailbox_create(comm._handle, ctypes.byref(self._handle)))

    def isend(self, src: Any, to: int, tag: int = 0, *, type: Kind = None) -> Request:
        """Starts to send. src must stay as it is until the request is done."""
        s, out = elements(src, type), POINTER()
        check(library().kolo_isend(self._handle, s.address, s.n, s.type, to, tag, ctypes.byref(out)))
        return Request(self, out, s)

    def irecv(self, dst: Any, source: int = ANY, tag: int = ANY, *, type: Kind = None) -> Request:
        """Starts to receive, by default from any rank and with any tag."""
        d, out = writable(elements(dst, type), "dst"), POINTER()
        check(library().kolo_irecv(self._handle, d.address, d.n, d.type, source, tag, ctypes.byref(out)))
        return Request(self, out, d)

    def send(self, src: Any, to: int, tag: int = 0, *, type: Kind = None, queue: Queue | None = None) -> None:
        """Blocks until src may be written again, or lets the queue send."""
        s = elements(src, type)
        if queue is not None:
            queue._keep(s)
        check(library().kolo_send_tag(self._handle, s.address, s.n, s.type, to, tag, queue._handle if queue is not None else None))

    def recv(self, dst: Any, source: int = ANY, tag: int = ANY, *, type: Kind = None, queue: Queue | None = None) -> Received | None:
        """Blocks until dst has the message, or lets the queue receive it; then there is no result."""
        d, got = writable(elements(dst, type), "dst"), ReceivedFields()
        if queue is not None:
            queue._keep(d)
        check(library().kolo_recv_tag(self._handle, d.address, d.n, d.type, source, tag, ctypes.byref(got) if queue is None else None,
                                      queue._handle if queue is not None else None))
        return Received(got.peer, got.tag, got.n) if queue is None else None

    @property
    def memory(self) -> int:
        """Bytes that this rank has for it, with what has come and nobody has received."""
        return int(library().kolo_mailbox_memory(self._handle))

    def close(self) -> None:
        """Leaves it. Requests that nobody waited for are gone."""
        if self._handle:
            library().kolo_mailbox_destroy(self._handle)
        self._handle = POINTER()
        self._under_way.clear()

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
