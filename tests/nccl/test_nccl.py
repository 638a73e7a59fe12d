"""libnccl.so.2 from the outside: a program that was built for NCCL, on GPUs made of threads."""
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from tap import B, SLOW, Skip, main, test
from torch_gpus import environment, in_wheels, names

FAKE = os.path.abspath(f"{B}/tests/fake")
CLIENT = os.path.abspath(f"{B}/tests/nccl_client")
LONG = bool(os.environ.get("T_LONG"))
STEPS = "5000" if LONG else "40" if SLOW else "150"


def program(*words, **variables):
    env = {**os.environ, "LD_LIBRARY_PATH": FAKE, "T_STEPS": STEPS, "NCCL_SOCKET_IFNAME": "lo", **variables}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, (words, done.returncode, done.stdout[-3000:], done.stderr[-3000:])


def client(mode, nranks, **variables):
    program(CLIENT, mode, str(nranks), **variables)


def for_ranks(mode, *numbers, slow):
    for nranks in range(1, 9) if LONG else slow if SLOW else numbers:
        client(mode, nranks)


@test
def random_programs_of_processes_are_right():
    for_ranks("processes", 1, 2, 3, 8, slow=(1, 3))


@test
def they_are_on_one_gpu():
    client("processes", 3, T_SHARE="1")


@test
def random_programs_of_threads_are_right():
    for_ranks("threads", 1, 2, 4, slow=(2, ))


@test
def one_thread_works_with_all_ranks():
    for_ranks("one", 1, 2, 4, slow=(2, ))


@test
def communicators_that_do_not_block_do_the_same():
    for_ranks("nonblocking", 1, 3, slow=(1, 3))


@test
def captures_are_replayed():
    for nranks in (1, 2, 3):
        client("graph", nranks)


@test
def a_killed_rank_is_named_by_the_others():
    for nranks in (2, 4):
        client("die", nranks)


@test
def any_thread_aborts_at_any_time():
    for turn in range(400 if LONG else 6 if SLOW else 20):
        client("abort", 3, T_BLOCKS=str(turn % 2))


@test
def splits_of_a_group_are_done_in_order_and_streams_may_be_many():
    client("many", 4)


@test
def ranks_may_be_left_behind():
    for nranks in (2, 4):
        client("shrink", nranks)
    client("shrink", 3, T_BLOCKS="0")


@test
def waiting_for_ranks_that_never_come_can_be_aborted():
    client("alone", 1)


def log_of(mode, nranks, **variables):
    """The lines that NCCL_DEBUG=INFO asks for."""
    with tempfile.TemporaryDirectory() as where:
        client(mode, nranks, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=f"{where}/%h.%p", **variables)
        return "".join(open(name).read() for name in glob.glob(f"{where}/*"))


@test
def variables_do_what_they_say_or_are_said_to_do_nothing():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    lines = log_of("graph", 2, NCCL_COMM_ID=f"127.0.0.1:{port}", NCCL_ALGO="Ring", NCCL_WHAT="1")
    assert "NCCL_ALGO=Ring is not used: an order of additions" in lines and "NCCL_WHAT=1 is not used: libnccl does not know it" in lines, lines
    assert "NCCL_COMM_ID" not in lines and "minCTAs" not in lines, lines
    edges = r"edge \d -> \d: (\w+)"
    assert set(re.findall(edges, log_of("processes", 2, NCCL_P2P_DISABLE="1"))) == {"shm"}
    assert set(re.findall(edges, log_of("processes", 2, NCCL_P2P_LEVEL="LOC", NCCL_SHM_DISABLE="1"))) == {"tcp"}
    assert "the config's minCTAs=0 is not used" in log_of("nonblocking", 2)
    assert "NCCL_NET=pigeon is not used" in log_of("graph", 2, NCCL_NET="pigeon")


@test
def a_file_may_set_them():
    with tempfile.TemporaryDirectory() as where:
        with open(f"{where}/conf", "w") as f:
            f.write("# a comment=1\n NCCL_PROTO = LL \nNCCL_ALGO=Tree\n\nnothing\n")
        os.link(f"{where}/conf", f"{where}/.nccl.conf")
        for variables in ({"NCCL_CONF_FILE": f"{where}/conf"}, {"HOME": where}):
            lines = log_of("graph", 1, NCCL_ALGO="Ring", **variables)
            assert "NCCL_PROTO=LL is not" in lines and "NCCL_ALGO=Ring is not" in lines and "comment" not in lines, lines
        assert "NCCL_CONF_FILE=/nowhere: No such file" in log_of("graph", 1, NCCL_CONF_FILE="/nowhere")


@test
def a_machine_without_a_driver_says_so():
    if os.environ.get("SAN") or shutil.which("nvidia-smi"):
        raise Skip("Python is built without the sanitizer, or there is a driver")
    with tempfile.TemporaryDirectory() as where:
        for name in "libnccl.so.2", "libkolo.so.0":
            shutil.copy(f"{FAKE}/{name}", where)
        text = "import ctypes; l = ctypes.CDLL('libnccl.so.2'); c = ctypes.c_void_p(); l.ncclGetLastError.restype = ctypes.c_char_p; " \
               "print(l.ncclMemAlloc(ctypes.byref(c), ctypes.c_size_t(8)), l.ncclGetLastError(None).decode())"
        done = subprocess.run([sys.executable, "-c", text], env={**os.environ, "LD_LIBRARY_PATH": where}, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("1 no CUDA driver: libcuda.so.1: cannot open"), done


@test
def what_pytorchs_process_groups_call_works():
    program(os.path.abspath(f"{B}/tests/nccl_group"), "3", "1000" if LONG else "6" if SLOW else "24")


@test
def what_can_not_be_is_refused():
    client("wrong", 2)
    client("wrong", 2, KOLO_NCCL_VERSION="23007", T_VERSION="23007")


# ---- Beside NVIDIA's ----

NCCL = os.path.abspath(f"{B}/nccl")
PYTHON = os.environ.get("T_TORCH", "")


def wheels(what):
    if not PYTHON:
        raise Skip("T_TORCH names no Python with torch and NVIDIA's packages")
    return in_wheels(PYTHON, what)


def nccl_names(library):
    return {name for name in names(library) if "nccl" in name}


@test
def every_name_of_nvidias_has_its_place():
    theirs = {name for name in names(wheels("nccl/lib/libnccl.so.2")) if name.lstrip("p").startswith("nccl")}
    assert len(theirs) > 150, len(theirs)
    assert theirs - nccl_names(f"{NCCL}/libnccl.so.2") == {"ncclResetDebugInitInternal"}  # in no header


@test
def types_and_functions_are_those_of_nvidias_header():
    include = wheels("nccl/include")
    cuda = [folder for folder in ("/usr/local/cuda/include", *glob.glob(f"{include}/../../cu*/include")) if os.path.exists(f"{folder}/cuda_runtime.h")]
    if not cuda or not shutil.which("g++"):
        raise Skip("no g++, or no cuda_runtime.h")
    with tempfile.TemporaryDirectory() as where:
        told = []
        for flags in ([], ["-DT_NVIDIA", "-DNCCL_OS_LINUX", "-Wno-deprecated-declarations", f"-I{include}", f"-I{cuda[0]}"]):
            subprocess.run(["g++", "-std=c++17", "-I.", *flags, "tests/nccl/nccl_layout.cc", "-o", f"{where}/layout"], check=True)
            told.append(subprocess.run([f"{where}/layout"], capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1] and told[0].count("\n") > 50, told


def finds_this_one(program):
    """Does a Python that runs it with kolo-nccl have our library, and no other?"""
    text = program + """
import ctypes, os
version = ctypes.c_int()
assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22809, version
lines = [line.split()[-1] for line in open("/proc/self/maps") if "libnccl" in line]
print(*{os.path.realpath(line) for line in lines})"""
    done = subprocess.run([f"{NCCL}/kolo-nccl", PYTHON, "-c", text], env={**os.environ, "LD_BIND_NOW": "1"}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"{NCCL}/libnccl.so.2\n", done


@test
def torch_finds_this_one_and_no_other():
    wheels("nccl/lib/libnccl.so.2")
    finds_this_one("import torch")


@test
def cupy_does_too():
    wheels("nccl/lib/libnccl.so.2")
    if subprocess.run([PYTHON, "-c", "import cupy"], capture_output=True).returncode:
        raise Skip(f"{PYTHON} has no CuPy")
    finds_this_one("from cupy.cuda import nccl; assert nccl.get_version() == 22809")


@test
def torchs_process_groups_of_nccl_work_on_it():
    wheels("nccl/lib/libnccl.so.2")
    env = {**os.environ, **environment(PYTHON, "libnccl.so.2"), "T_BACKEND": "nccl", "PYTHONDONTWRITEBYTECODE": "1"}
    training = ["ddp", "fsdp2", *(["hsdp", "tensor_parallel", "tensor_and_data_parallel", "pipelines", "checkpoints", "zero_redundancy_optimizer"]
                                  if LONG else [])]
    programs = {"matrix.py": ["reductions", "movements"],
                "streams.py": ["operations_come_between_what_streams_do", "messages", "coalescing_futures_splits_and_factors",
                               "all_ranks_may_share_a_gpu", "groups_come_and_go", "a_capture_is_replayed"],
                "training.py": training}
    for program, cases in programs.items():
        done = subprocess.run([PYTHON, "-W", "ignore", f"tests/tools/torch/{program}", *cases], env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and done.stdout.count("good ") == len(cases), (done.stdout, done.stderr[-4000:])


@test
def the_script_says_what_it_wants():
    for words in ((), ("--what", )):
        done = subprocess.run([f"{NCCL}/kolo-nccl", *words], capture_output=True, text=True)
        assert done.returncode == 125 and "want a program to run" in done.stderr, done
    with tempfile.TemporaryDirectory() as where:
        shutil.copy(f"{NCCL}/kolo-nccl", where)
        done = subprocess.run([f"{where}/kolo-nccl", "true"], capture_output=True, text=True)
        assert done.returncode == 125 and "no libnccl.so.2 beside" in done.stderr, done


if __name__ == "__main__":
    main()
