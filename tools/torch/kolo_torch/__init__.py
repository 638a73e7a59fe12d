"""torch.distributed on Kolo: init_process_group("kolo")."""
from __future__ import annotations

import atexit
import os
import socket
from typing import Any

import torch
import torch.distributed as dist

REBUILD = "build it anew: pip install --no-build-isolation --force-reinstall --no-deps tools/torch"


def _extension() -> Any:
    """The extension, if it is for this torch: another one has other classes, and nothing would tell."""
    version = ".".join(torch.__version__.split(".")[:2])
    try:
        from . import _C
    except ImportError as e:
        raise ImportError(f"kolo_torch does not fit torch {version} ({e}); {REBUILD}") from e
    if _C.TORCH != version:
        raise ImportError(f"kolo_torch was built for torch {_C.TORCH}, and this is torch {version}; {REBUILD}")
    return _C


_C = _extension()


def _choose_address() -> None:
    """An id is for this host alone, unless KOLO_IFACE names an address: then it is the one from which MASTER_ADDR is reached."""
    master = os.environ.get("MASTER_ADDR")
    if "KOLO_IFACE" in os.environ or not master:
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((master, 1))
            own = s.getsockname()[0]
    except OSError:
        return
    if not own.startswith("127."):
        os.environ["KOLO_IFACE"] = own


def create(options: Any, _: Any = None, *, name: str = "kolo") -> Any:
    """What torch calls to make a process group's backend. `name` is what it calls itself."""
    _choose_address()
    group = options.group_id or "default"
    return _C.create(options.store, options.group_rank, options.group_size, options.timeout.total_seconds(), group, name)


def register() -> None:
    """Tells torch of the backend, once."""
    if not hasattr(dist.Backend, "KOLO"):
        dist.Backend.register_backend("kolo", create, extended_api=True, devices=["cpu", "cuda"])


register()
atexit.register(_C.rest)
