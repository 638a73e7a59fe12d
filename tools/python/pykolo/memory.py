"""Where the elements of a Python object are: numpy arrays, what has __array_interface__ or __cuda_array_interface__, DLPack
(torch, jax, cupy), and buffers (array, bytearray, memoryview)."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from .library import Type


class Elements(NamedTuple):
    """n elements of a type at an address; `owner` keeps them there."""

    address: int
    n: int
    type: Type
    owner: Any
    writable: bool
    complex: bool

    @property
    def bytes(self) -> int:
        return self.n * self.type.size


# By kind and size, as numpy writes them. A bool is a byte of 0 or 1.
TYPES = {"i1": Type.I8, "u1": Type.U8, "b1": Type.U8, "i2": Type.I16, "u2": Type.U16, "i4": Type.I32, "u4": Type.U32, "i8": Type.I64,
         "u8": Type.U64, "f2": Type.F16, "f4": Type.F32, "f8": Type.F64}
COMPLEX = {"c8": Type.F32, "c16": Type.F64}


def _named(kind: str, what: object) -> tuple[Type, bool]:
    if kind in COMPLEX:
        return COMPLEX[kind], True
    if kind not in TYPES:
        raise TypeError(f"Kolo has no type for elements {kind!r} of {what!r:.80}: name one with type=")
    return TYPES[kind], False


def _count(shape: tuple[int, ...], strides: tuple[int, ...] | None, unit: int) -> int:
    """How many there are, if they lie one after the other. Strides count in units."""
    n = 1
    for length in shape:
        n *= length
    step = unit
    for length, stride in zip(reversed(shape), reversed(strides or ())):
        if n > 0 and length > 1 and stride != step:
            raise ValueError("Kolo wants elements that lie one after the other: make a contiguous copy")
        step *= length
    return n


def _of_interface(thing: Any, interface: dict[str, Any]) -> Elements:
    text = interface["typestr"]
    if text[0] not in "|<":
        raise TypeError(f"Kolo wants the byte order of this machine, not {text!r}")
    kind, is_complex = _named(text[1:], thing)
    n = _count(interface["shape"], interface.get("strides"), int(text[2:]))
    address, readonly = interface["data"]
    return Elements(address or 0, n * (2 if is_complex else 1), kind, thing, not readonly, is_complex)


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_DL_BFLOAT = 4
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(thing: Any) -> Elements:
    capsule = thing.__dlpack__()
    t = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    if t.lanes != 1:
        raise TypeError("Kolo wants elements, not vectors of them")
    if t.code == _DL_BFLOAT and t.bits == 16:
        kind, is_complex = Type.BF16, False
    else:
        kind, is_complex = _named(f"{_DL_KINDS.get(t.code, '?')}{t.bits // 8}", thing)
    shape = tuple(t.shape[:t.ndim])
    n = _count(shape, tuple(t.strides[:t.ndim]) if t.strides else None, 1)
    # What the capsule refers to must stay, so it does, too.
    return Elements((t.data or 0) + t.byte_offset, n * (2 if is_complex else 1), kind, (thing, capsule), True, is_complex)


def _of_buffer(thing: Any) -> Elements:
    view = memoryview(thing)
    if not view.c_contiguous:
        raise ValueError("Kolo wants elements that lie one after the other: make a contiguous copy")
    letter = view.format.lstrip("@=<")
    kinds = {"b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "n": "i", "B": "u", "H": "u", "I": "u", "L": "u", "Q": "u", "N": "u",
             "e": "f", "f": "f", "d": "f", "?": "b", "c": "u"}
    kind, is_complex = _named(f"{kinds.get(letter, '?')}{view.itemsize}", thing)
    if view.readonly:
        # ctypes takes the address of what may be written only.
        copy = bytes(view)
        return Elements(ctypes.cast(copy, ctypes.c_void_p).value or 0, view.nbytes // view.itemsize, kind, copy, False, is_complex)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
    return Elements(address, view.nbytes // view.itemsize, kind, (thing, view), True, is_complex)


def elements(thing: Any, type: Type | str | None = None) -> Elements:
    """The elements of an object. `type` says what they are, if it is not what the object says: like "bf16" in a uint16 array."""
    cuda, host = getattr(thing, "__cuda_array_interface__", None), getattr(thing, "__array_interface__", None)
    if cuda is not None:
        found = _of_interface(thing, cuda)
    elif host is not None:
        found = _of_interface(thing, host)
    elif hasattr(thing, "__dlpack__"):
        found = _of_dlpack(thing)
    else:
        found = _of_buffer(thing)
    if type is None:
        return found
    wanted = Type[type.upper()] if isinstance(type, str) else Type(type)
    if found.bytes % wanted.size:
        raise ValueError(f"{found.bytes} bytes are no whole number of {wanted.name}")
    return found._replace(n=found.bytes // wanted.size, type=wanted, complex=False)


def writable(e: Elements, what: str) -> Elements:
    """The same elements, unless nothing may be written there."""
    if not e.writable:
        raise ValueError(f"Kolo writes to {what}, and it is read-only")
    return e
