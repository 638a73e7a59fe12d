"""The C library: where it is, what its functions take, and its errors as exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import enum
import os

# A pointer or a size_t that ctypes is not told about would be passed as an int.
POINTER, SIZE, INT, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
OUT, COUNTS = ctypes.POINTER(POINTER), ctypes.POINTER(SIZE)


class Status(enum.IntEnum):
    """enum kolo_status."""

    OK = 0
    INVALID = -1
    NO_MEMORY = -2
    NOT_SUPPORTED = -3
    UNREACHABLE = -4
    TIMED_OUT = -5
    PEER_GONE = -6
    MISMATCH = -7
    SYSTEM = -8
    ABORTED = -9
    OVERFLOW = -10


class Type(enum.IntEnum):
    """enum kolo_type."""

    I8, U8, I32, U32, I64, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, I16, U16, C64, C128 = range(16)
    I32_I32, I64_I32, F32_I32, F64_I32 = range(16, 20)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return library().kolo_type_size(self)


class Op(enum.IntEnum):
    """enum kolo_op."""

    SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC = range(13)


class KoloError(Exception):
    """A call that failed: `status`, and as text what the library says of it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)


class Id(ctypes.Structure):
    """struct kolo_id."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


LOG = ctypes.CFUNCTYPE(None, POINTER, INT, TEXT)


class Attributes(ctypes.Structure):
    """struct kolo_comm_attr."""

    _fields_ = [("id", ctypes.POINTER(Id)), ("rank", INT), ("nranks", INT), ("timeout_s", INT), ("nslots", INT), ("slot_len", SIZE),
                ("transport", TEXT), ("algorithm", TEXT), ("log", LOG), ("log_arg", POINTER), ("log_level", INT), ("order", TEXT),
                ("group", ctypes.c_uint64), ("progress", POINTER), ("progress_arg", POINTER), ("reserved", ctypes.c_uint64)]


class LinkStats(ctypes.Structure):
    """struct kolo_link_stats."""

    _fields_ = [("peer", INT), ("transport", ctypes.c_char * 12), ("bytes", ctypes.c_uint64), ("slots", ctypes.c_uint64),
                ("stores", ctypes.c_char * 12), ("rate", ctypes.c_double)]


class Stats(ctypes.Structure):
    """struct kolo_stats."""

    _fields_ = [(name, ctypes.c_uint64) for name in
                ("ops", "ring_ops", "board_ops", "direct_ops", "exchange_ops", "pair_ops", "sent_bytes", "received_bytes",
                 "model_sent_bytes", "model_received_bytes", "memory_bytes", "slot_len", "nslots")] + [
        ("algorithm", ctypes.c_char * 16), ("hop_us", ctypes.c_double), ("to_next", LinkStats), ("from_prev", LinkStats),
        ("slots_near", ctypes.c_char * 16), ("reserved", ctypes.c_uint64 * 2)]


class ReceivedFields(ctypes.Structure):
    """struct kolo_received."""

    _fields_ = [("peer", INT), ("tag", INT), ("n", SIZE), ("reserved", ctypes.c_uint64 * 2)]


COLLECTIVE = [POINTER, POINTER, POINTER]
FUNCTIONS = {
    "kolo_version": (INT, []),
    "kolo_last_error": (TEXT, []),
    "kolo_type_size": (SIZE, [INT]),
    "kolo_id_create": (INT, [ctypes.POINTER(Id)]),
    "kolo_comm_create": (INT, [ctypes.POINTER(Attributes), OUT]),
    "kolo_comm_split_order": (INT, [POINTER, INT, INT, TEXT, OUT]),
    "kolo_comm_destroy": (None, [POINTER]),
    "kolo_comm_abort": (None, [POINTER]),
    "kolo_comm_status": (INT, [POINTER]),
    "kolo_timeout_set": (INT, [POINTER, INT]),
    "kolo_comm_rank": (INT, [POINTER]),
    "kolo_comm_nranks": (INT, [POINTER]),
    "kolo_comm_local_ranks": (INT, [POINTER]),
    "kolo_comm_order": (TEXT, [POINTER]),
    "kolo_comm_stats": (INT, [POINTER, ctypes.POINTER(Stats)]),
    "kolo_alloc": (INT, [POINTER, SIZE, OUT]),
    "kolo_free": (INT, [POINTER, POINTER]),
    "kolo_queue_create": (INT, [OUT]),
    "kolo_cuda_queue_create": (INT, [POINTER, OUT]),
    "kolo_queue_destroy": (None, [POINTER]),
    "kolo_queue_wait": (INT, [POINTER]),
    "kolo_queue_wait_event": (INT, [POINTER, POINTER]),
    "kolo_event_create": (INT, [OUT]),
    "kolo_event_destroy": (None, [POINTER]),
    "kolo_event_record": (INT, [POINTER, POINTER]),
    "kolo_event_query": (INT, [POINTER, ctypes.POINTER(INT)]),
    "kolo_event_wait": (INT, [POINTER]),
    "kolo_op_create_premul_sum": (INT, [POINTER, POINTER, INT, ctypes.POINTER(INT)]),
    "kolo_op_destroy": (INT, [POINTER, INT]),
    "kolo_all_reduce": (INT, [*COLLECTIVE, SIZE, INT, INT, POINTER]),
    "kolo_reduce": (INT, [*COLLECTIVE, SIZE, INT, INT, INT, POINTER]),
    "kolo_broadcast": (INT, [*COLLECTIVE, SIZE, INT, INT, POINTER]),
    "kolo_reduce_scatter": (INT, [*COLLECTIVE, SIZE, INT, INT, POINTER]),
    "kolo_reduce_scatter_v": (INT, [*COLLECTIVE, COUNTS, INT, INT, POINTER]),
    "kolo_all_gather": (INT, [*COLLECTIVE, SIZE, INT, POINTER]),
    "kolo_all_gather_v": (INT, [*COLLECTIVE, COUNTS, INT, POINTER]),
    "kolo_barrier": (INT, [POINTER, POINTER]),
    "kolo_send": (INT, [POINTER, POINTER, SIZE, INT, INT, POINTER]),
    "kolo_recv": (INT, [POINTER, POINTER, SIZE, INT, INT, POINTER]),
    "kolo_all_to_all": (INT, [*COLLECTIVE, SIZE, INT, POINTER]),
    "kolo_all_to_all_v": (INT, [POINTER, POINTER, COUNTS, POINTER, COUNTS, INT, POINTER]),
    "kolo_gather": (INT, [*COLLECTIVE, SIZE, INT, INT, POINTER]),
    "kolo_gather_v": (INT, [POINTER, POINTER, SIZE, POINTER, COUNTS, INT, INT, POINTER]),
    "kolo_scatter": (INT, [*COLLECTIVE, SIZE, INT, INT, POINTER]),
    "kolo_scatter_v": (INT, [POINTER, POINTER, COUNTS, POINTER, SIZE, INT, INT, POINTER]),
    "kolo_mailbox_create": (INT, [POINTER, OUT]),
    "kolo_mailbox_destroy": (None, [POINTER]),
    "kolo_mailbox_memory": (SIZE, [POINTER]),
    "kolo_isend": (INT, [POINTER, POINTER, SIZE, INT, INT, INT, OUT]),
    "kolo_irecv": (INT, [POINTER, POINTER, SIZE, INT, INT, INT, OUT]),
    "kolo_request_test": (INT, [POINTER, ctypes.POINTER(INT)]),
    "kolo_request_poll": (INT, [POINTER, INT, ctypes.POINTER(INT)]),
    "kolo_request_wait": (INT, [POINTER, ctypes.POINTER(ReceivedFields)]),
    "kolo_request_cancel": (INT, [POINTER]),
    "kolo_send_tag": (INT, [POINTER, POINTER, SIZE, INT, INT, INT, POINTER]),
    "kolo_recv_tag": (INT, [POINTER, POINTER, SIZE, INT, INT, INT, ctypes.POINTER(ReceivedFields), POINTER]),
    "kolo_group_begin": (INT, []),
    "kolo_group_end": (INT, []),
}

_loaded: ctypes.CDLL | None = None


def load(path: str | None = None) -> ctypes.CDLL:
    """Loads the library, from `path`, from PYKOLO_LIBRARY, or from where the loader looks. The first call counts."""
    global _loaded
    if _loaded is None:
        found = ctypes.CDLL(path or os.environ.get("PYKOLO_LIBRARY") or ctypes.util.find_library("kolo") or "libkolo.so.0")
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        _loaded = found
    return _loaded


def library() -> ctypes.CDLL:
    return _loaded if _loaded is not None else load()


def check(status: int) -> None:
    """Raises what a negative status means. Nothing may be called in between: the text is that of the last error."""
    if status < 0:
        raise KoloError(status, library().kolo_last_error().decode(errors="replace"))
