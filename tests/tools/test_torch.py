"""kolo_torch: torch.distributed on Kolo, in a Python that has both (make deps WITH=torch torch). The programs are in tests/tools/torch.

T_TORCH names that Python. Torch's own tests, and what trains: a fifth of them each time, all with T_LONG=1."""
import os
import re
import zlib

from tap import B, Skip, main, run, test

LONG, SHARE = os.environ.get("T_LONG"), 5
PYTHON = os.environ.get("T_TORCH", "build/torch/venv/bin/python")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/torch"

# What torch's own tests want and no backend of another's can give.
REASONS = {"test_ddp_logging_data_cpu": "it wants the backend's name from DDP's logger, which writes 'custom' for all that are not torch's own"}


def python(*arguments, seconds=1000, **variables):
    if not os.path.exists(PYTHON) or run(PYTHON, "-c", "import torch, kolo_torch").returncode:
        raise Skip("no Python with torch and kolo_torch: make deps WITH=torch torch (T_TORCH names one)")
    return run(PYTHON, "-W", "ignore", *arguments, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}, timeout=seconds)


def good(program, *cases):
    done = python(f"{HERE}/{program}", *cases)
    said = [line[5:] for line in done.stdout.splitlines() if line.startswith("good ")]
    assert done.returncode == 0 and said and (not cases or sorted(said) == sorted(cases)), (said, done.stderr[-4000:])


def fifth(names):
    """Those whose turn it is; the seed shifts it."""
    turn = int(os.environ.get("T_SEED", "2026")) % SHARE
    return [name for name in names if LONG or zlib.crc32(name.encode()) % SHARE == turn]


@test
def every_operation_does_what_it_says_for_every_type():
    good("matrix.py")


@test
def groups_come_and_go_and_culprits_are_named():
    good("jobs.py")


@test
def what_trains_on_gloo_trains_on_kolo():
    with open(f"{HERE}/training.py") as file:
        cases = re.findall(r"@case\ndef (\w+)", file.read())
    assert len(cases) == 10
    if python("-c", "import deepspeed").returncode:
        cases.remove("deepspeed")
    good("training.py", *(fifth(cases) or cases[:1]))


def suite(name, ranks):
    """torch's tests of a backend, under this name."""
    listed = python(f"{HERE}/suite.py", "--names", KOLO_AS=name)
    names = fifth(listed.stdout.split())
    assert listed.returncode == 0 and names, listed.stderr[-3000:]
    done = python(f"{HERE}/suite.py", *(f"TestKolo.{test}" for test in names), KOLO_AS=name, WORLD_SIZE=str(ranks))
    failed = re.findall(r"^(?:ERROR|FAIL): (\w+) ", done.stderr, re.MULTILINE)
    ran, skipped = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE), re.search(r"skipped=(\d+)", done.stderr)
    assert ran and int(ran[1]) == len(names) and set(failed) <= set(REASONS), (failed, done.stderr[-3000:])
    print(f"# {name}, {ranks} ranks: {len(names) - len(failed) - int(skipped[1] if skipped else 0)} passed, {len(failed)} failed as listed, "
          f"{skipped[1] if skipped else 0} skipped by torch")


@test
def torchs_own_tests_pass():
    suite("kolo", 4)


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
