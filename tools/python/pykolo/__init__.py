"""Kolo from Python.

    import numpy, pykolo

    with pykolo.Communicator() as comm:     # ringrun -n 4 python3 program.py
        x = numpy.ones(1000, "f4")
        comm.all_reduce(x)                  # in place: 4.0 everywhere
        with pykolo.Queue() as queue:
            comm.all_reduce(x, op="max", queue=queue)
            queue.wait()

Every call checks its buffers, and raises KoloError with the library's text, which names the rank that is to blame."""
from .communicator import Communicator, Memory, make_id
from .library import KoloError, Op, Status, Type, library, load
from .mailbox import ANY, Mailbox, Received, Request
from .queues import Event, Queue, group


def version() -> str:
    """Of the library in use."""
    n = library().kolo_version()
    return f"{n // 10000}.{n // 100 % 100}.{n % 100}"


__all__ = ["ANY", "Communicator", "Event", "KoloError", "Mailbox", "Memory", "Op", "Queue", "Received", "Request", "Status", "Type",
           "group", "load", "make_id", "version"]
