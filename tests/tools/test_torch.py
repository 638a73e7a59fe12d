"""kolo_torch: torch.distributed on Kolo, in a Python that has both (make deps WITH=torch torch). The programs are in tests/tools/torch.

T_TORCH names that Python. Torch's own tests, and what trains: a fifth of them each time, all with T_LONG=1."""
import os
import re
import zlib

from tap import Skip, main, run, test
from torch_gpus import environment

LONG, SHARE = os.environ.get("T_LONG"), 5
PYTHON = os.environ.get("T_TORCH", "build/torch/venv/bin/python")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/torch"

# What torch's own tests want and no backend of another's can give.
REASONS = {"test_ddp_logging_data_cpu": "it wants the backend's name from DDP's logger, which writes 'custom' for all that are not torch's own"}
# And what GPUs made of threads can't: by the beginnings of names.
OF_THREADS = {"test_DistributedDataParallel_SyncBatchNorm": "it wants kernels for batch norm, which the CPU has not",
              "test_DistributedDataParallel_with_amp": "a softmax from half to float, which the CPU has not",
              "test_ddp_apply_optim_in_backward": "batch norm", "test_ddp_inference": "batch norm", "test_ddp_uneven_inputs": "batch norm",
              "test_ddp_multiple_nested_unused_params_err": "it prints tensors, which turns the kernels off",
              "test_ddp_profiling_torch_profiler": "it wants NVIDIA's profiler"}


def want_torch():
    if not os.path.exists(PYTHON) or run(PYTHON, "-c", "import torch, kolo_torch").returncode:
        raise Skip("no Python with torch and kolo_torch: make deps WITH=torch torch (T_TORCH names one)")


def python(*arguments, seconds=1000, **variables):
    want_torch()
    return run(PYTHON, "-W", "ignore", *arguments, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}, timeout=seconds)


def good(program, *cases, **variables):
    done = python(f"{HERE}/{program}", *cases, **variables)
    said = [line[5:] for line in done.stdout.splitlines() if line.startswith("good ")]
    assert done.returncode == 0 and said and (not cases or sorted(said) == sorted(cases)), (said, done.stderr[-4000:])


def fifth(names):
    """Those whose turn it is; the seed shifts it."""
    turn = int(os.environ.get("T_SEED", "2026")) % SHARE
    return [name for name in names if LONG or zlib.crc32(name.encode()) % SHARE == turn]


def training_cases():
    with open(f"{HERE}/training.py") as file:
        cases = re.findall(r"@case\ndef (\w+)", file.read())
    assert len(cases) == 10
    return cases


@test
def every_operation_does_what_it_says_for_every_type():
    good("matrix.py")


@test
def cuda_tensors_are_done_on_streams():
    want_torch()
    env = environment(PYTHON, "libkolo.so.0")
    good("matrix.py", "reductions", "movements", **env)
    good("streams.py", **env)
    cases = [case for case in training_cases() if case != "deepspeed"]  # that wants to compile kernels
    good("training.py", *(fifth(cases) or cases[:1]), **env)


@test
def groups_come_and_go_and_culprits_are_named():
    good("jobs.py")


@test
def what_trains_on_gloo_trains_on_kolo():
    cases = training_cases()
    if python("-c", "import deepspeed").returncode:
        cases.remove("deepspeed")
    good("training.py", *(fifth(cases) or cases[:1]))


def suite(name, ranks, excused=(), **variables):
    """torch's tests of a backend, under this name."""
    listed = python(f"{HERE}/suite.py", "--names", KOLO_AS=name)
    names = fifth(re.findall(r"^test_\w+$", listed.stdout, re.MULTILINE))
    assert listed.returncode == 0 and names, listed.stderr[-3000:]
    done = python(f"{HERE}/suite.py", *(f"TestKolo.{test}" for test in names), KOLO_AS=name, WORLD_SIZE=str(ranks), **variables)
    failed = re.findall(r"^(?:ERROR|FAIL): (\w+) ", done.stderr, re.MULTILINE)
    ran, skipped = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE), re.search(r"skipped=(\d+)", done.stderr)
    bad = [test for test in failed if test not in REASONS and not test.startswith(tuple(excused))]
    assert ran and int(ran[1]) == len(names) and not bad, (bad, done.stderr[-3000:])
    print(f"# {name}, {ranks} ranks: {len(names) - len(failed) - int(skipped[1] if skipped else 0)} passed, {len(failed)} failed as listed, "
          f"{skipped[1] if skipped else 0} skipped by torch")


@test
def torchs_own_tests_pass():
    suite("kolo", 4)


@test
def torchs_own_tests_pass_with_cuda_tensors():
    want_torch()
    suite("kolo", 2, OF_THREADS, **environment(PYTHON, "libkolo.so.0", "libnccl.so.2"))  # some make a group of NCCL's beside


@test
def torchs_tests_of_gloo_pass():
    suite("gloo", 4)


@test
def torchs_own_tests_pass_on_8_ranks():
    if not LONG:
        raise Skip("part of make check-long")
    suite("kolo", 8)
    suite("gloo", 8)


main()
