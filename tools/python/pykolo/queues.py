"""Queues, which do operations beside the program's own work, events in them, and groups of calls."""
from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from .library import INT, POINTER, check, library


class Queue:
    """A thread that does operations in order (kolo_queue_create), or a CUDA stream's place for them, by its handle
    (kolo_cuda_queue_create). What operations use is kept until `wait`. Ends with `close`, or at the end of `with`."""

    def __init__(self, stream: int | None = None) -> None:
        self._handle, self._lock = POINTER(), threading.Lock()
        self._kept: list[Any] = []
        out = ctypes.byref(self._handle)
        check(library().kolo_queue_create(out) if stream is None else library().kolo_cuda_queue_create(stream, out))

    def wait(self) -> None:
        """Blocks until all is done that is in the queue now, and raises the first failure."""
        with self._lock:
            kept, self._kept = self._kept, []
        try:
            check(library().kolo_queue_wait(self._handle))
        finally:
            kept.clear()

    def wait_event(self, event: Event) -> None:
        """What is put into the queue from now on comes after the event's last record."""
        check(library().kolo_queue_wait_event(self._handle, event._handle))

    def close(self) -> None:
        """Ends it, when all is done."""
        if self._handle:
            library().kolo_queue_destroy(self._handle)
        self._handle = POINTER()
        self._kept.clear()

    def _keep(self, *things: Any) -> None:
        with self._lock:
            self._kept.append(things)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Event:
    """A place in a queue that can be waited for."""

    def __init__(self, queue: Queue | None = None) -> None:
        self._handle = POINTER()
        check(library().kolo_event_create(ctypes.byref(self._handle)))
        if queue is not None:
            self.record(queue)

    def record(self, queue: Queue) -> None:
        """It comes when all is done that is in the queue now."""
        check(library().kolo_event_record(self._handle, queue._handle))

    def query(self) -> bool:
        """Whether it has come. Never blocks."""
        done = INT()
        check(library().kolo_event_query(self._handle, ctypes.byref(done)))
        return bool(done.value)

    def wait(self) -> None:
        """Blocks until it has come, and raises the failure that its queue had then."""
        check(library().kolo_event_wait(self._handle))

    def close(self) -> None:
        if self._handle:
            library().kolo_event_destroy(self._handle)
        self._handle = POINTER()

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_groups = threading.local()


def keep_in_group(*things: Any) -> None:
    """What calls of an open group use must stay until it ends."""
    if getattr(_groups, "depth", 0):
        _groups.kept.append(things)


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls in it are done together at its end: sends and receives at once and in any order, then collectives."""
    if not getattr(_groups, "depth", 0):
        _groups.depth, _groups.kept = 0, []
    library().kolo_group_begin()
    _groups.depth += 1
    try:
        yield
    except BaseException:
        _end_group()
        raise
    check(_end_group())


def _end_group() -> int:
    status = library().kolo_group_end()
    _groups.depth -= 1
    if not _groups.depth:
        _groups.kept.clear()
    return status
