"""What a GPU made of threads lacks: kernels. The CPU computes on its memory, which the host can reach, when the current stream is done."""
import ctypes

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

# What needs no kernel: memory, other names for it, and all of process groups.
MEMORY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_", "set_", "record_stream", "is_pinned", "_pin_memory"}
OTHERS = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "prim", "profiler"}


def _is_view(function):
    schema = function._schema
    return any(a.alias_info and not a.alias_info.is_write for a in schema.arguments) and not schema.is_mutable


def host_view(x):
    """A tensor of the CPU in the memory of a CUDA tensor."""
    storage = x.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    return torch.empty(0, dtype=x.dtype).set_(torch.frombuffer(memory, dtype=torch.uint8).untyped_storage(), x.storage_offset(), x.shape, x.stride())


class Kernels(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if FakeTensor in types:  # it has no elements
            return function(*args, **kwargs)
        # Of a class with a dispatch of its own, as DTensor: this is called again with what that makes of it.
        if set(types) - {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            return NotImplemented
        name, device = function._schema.name.split("::")[1], kwargs.get("device")
        there = []
        tree_map_only(torch.Tensor, lambda x: there.append(x.device) if x.device.type == "cuda" else None, (args, kwargs))
        to = torch.device(device) if device is not None else there[0] if there and name != "_local_scalar_dense" else torch.device("cpu")
        if function.namespace in OTHERS or name in MEMORY or _is_view(function) or not (there or to.type == "cuda"):
            return function(*args, **kwargs)
        torch.cuda.current_stream(there[0] if there else to).synchronize()
        views, originals = {}, {}  # by the ids of originals, which the arguments keep, and of views

        def here(x):
            if isinstance(x, torch.Tensor) and x.device.type == "cuda":
                if id(x) not in views:
                    views[id(x)] = host_view(x)
                    originals[id(views[id(x)])] = x
                return views[id(x)]
            return torch.device("cpu") if isinstance(x, torch.device) else x
        on_cpu, named = tree_map(here, (args, kwargs))
        result = function(*on_cpu, **named)

        def back(x):
            if not isinstance(x, torch.Tensor) or id(x) in originals:
                return originals.get(id(x), x)
            return (x if torch.ops.aten.is_non_overlapping_and_dense(x) else x.contiguous()).to(to)
        return tree_map(back, result)
