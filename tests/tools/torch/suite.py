"""torch's own tests of a backend (torch/testing/_internal/distributed/distributed_test.py), on Kolo.

    [KOLO_AS=gloo] WORLD_SIZE=4 python suite.py [-k PATTERN | TestKolo.test_NAME ... | --names]

Kolo is a backend of its own name, as any plug-in. With KOLO_AS=gloo it takes gloo's name, so that also runs what torch only tries
with gloo. KOLO_AS=nccl is torch's own, on libnccl of Kolo. T_DEVICE=cuda: on GPUs made of threads. Ranks are forked."""
import multiprocessing
import os
import sys
import tempfile
import types

AS = os.environ.get("KOLO_AS", "kolo")
os.environ["BACKEND"] = AS
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="kolo-torch-"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

if AS != "nccl":
    import kolo_torch

if AS == "gloo" and hasattr(dist.Backend, "_ensure_backend_registered"):
    def create(options, backend_options=None):
        return kolo_torch.create(options, backend_options, name="gloo")

    dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu"])
elif AS == "gloo":  # before 2.14 a name can't be taken over
    class OfAnyBackend(type):
        def __instancecheck__(cls, x):
            return isinstance(x, c10d.ProcessGroup) or type(x).__name__ == "ProcessGroupKolo"

    class Gloo(metaclass=OfAnyBackend):
        def __new__(cls, store, rank, size, timeout):
            return kolo_torch._C.create(store, rank, size, timeout.total_seconds(), "default", "gloo")

    c10d.ProcessGroupGloo = Gloo
    if not hasattr(torch._C._distributed_c10d.Backend, "options"):
        torch._C._distributed_c10d.Backend.options = types.SimpleNamespace()

from torch.testing._internal.common_distributed import DistTestCases

for feature in ("ddp", "subgroup", "gpu", "cuda", "plugin"):
    DistTestCases.backend_feature.setdefault(feature, set()).add("kolo")

from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


CUDA = os.environ.get("T_DEVICE") == "cuda"
if CUDA:  # GPUs made of threads may be counted before a fork
    torch.cuda._is_in_bad_fork = lambda: False


class TestKolo(TestDistBackend, DistributedTest._DistTestBase):
    @classmethod
    def _run(cls, *arguments, **more):
        if CUDA:
            from kernels import Kernels

            Kernels().__enter__()
        super()._run(*arguments, **more)

    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)  # torch is imported once
        for folder in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)


if __name__ == "__main__" and sys.argv[1:] == ["--names"]:
    print("\n".join(name for name in dir(TestKolo) if name.startswith("test_")))
elif __name__ == "__main__":
    run_tests()
