"""Torch's CUDA build on GPUs made of threads: its runtime is tests/cuda/fake_runtime.c, compiled with the header of NVIDIA's wheel."""
import glob
import os
import re
import subprocess

from tap import B, Skip

FAKE = os.path.abspath(f"{B}/tests/fake")
SOURCE = "tests/cuda/fake_runtime"


def in_wheels(python, what):
    """A file or folder of NVIDIA's packages in that Python."""
    where = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True,
                           text=True, check=True).stdout.strip()
    found = glob.glob(f"{where}/nvidia/{what}")
    if not found:
        raise Skip(f"no nvidia/{what} in {where}")
    return found[0]


def names(library):
    """What a library defines."""
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def _runtime(python):
    """The path of the runtime. NVIDIA's functions that it lacks are there too, and say so."""
    nvidia = os.path.dirname(in_wheels(python, "cu13/include"))
    with open(f"{SOURCE}.c") as file:
        own = set(re.findall(r"^[a-z].*?((?:__)?cuda\w+)\(", file.read(), re.MULTILINE))
    absent = {name for name in names(f"{nvidia}/lib/libcudart.so.13") if re.match("(__)?cuda", name)} - own
    out = f"{FAKE}/libcudart.so.13"
    with open(f"{FAKE}/absent.h", "w") as file:
        file.writelines(f"ABSENT({name})\n" for name in sorted(absent))
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-shared", f"-I{nvidia}/include",
                    f'-DT_ABSENT="{FAKE}/absent.h"', f"{SOURCE}.c", f"-Wl,--version-script={SOURCE}.map", "-Wl,-soname,libcudart.so.13",
                    f"-L{FAKE}", "-l:libcuda.so.1", "-lpthread", "-o", out], check=True)
    return out


def environment(python, *libraries):
    """Variables for a program of that Python. These libraries of tests/fake take the places of those that torch would load.

    With a GPU in the machine: for that one."""
    if os.environ.get("SAN"):
        raise Skip("Python is built without the sanitizer")
    if os.path.exists("/dev/nvidiactl"):
        return {"T_DEVICE": "cuda", "T_REAL_GPU": "1"}
    preload = [_runtime(python), *(f"{FAKE}/{library}" for library in libraries)]
    return {"LD_LIBRARY_PATH": FAKE, "LD_PRELOAD": " ".join(preload), "NCCL_SOCKET_IFNAME": "lo", "T_DEVICE": "cuda"}
