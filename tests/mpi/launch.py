"""The MPIs that may be installed: how a program is built for each and started, with kolo-mpi or without. All on one host, over loopback
at most."""
import os
import shutil
import subprocess
import tempfile
from typing import NamedTuple

from tap import B, Skip

KOLO_MPI = os.path.abspath(f"{B}/mpi/kolo-mpi")
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


class Mpi(NamedTuple):
    c: str
    fortran: str
    launcher: list


MPIS = {
    "openmpi": Mpi("mpicc.openmpi", "mpif90.openmpi", ["mpirun.openmpi", *ROOT, "--oversubscribe", "--bind-to", "none", "--mca",
                                                      "oob_tcp_if_include", "lo", "--mca", "btl", "self,vader"]),
    "mpich": Mpi("mpicc.mpich", "mpif90.mpich", ["mpiexec.mpich", "-launcher", "fork", "-iface", "lo"]),
    "standard": Mpi("mpicc_abi", "", ["mpiexec.hydra", "-launcher", "fork", "-iface", "lo"]),  # an MPICH of 4.3 or later in PATH
}


PLACE = tempfile.TemporaryDirectory(prefix="kolo-mpi-")


def is_there(abi):
    """Can its programs start here, and was Kolo built for them?"""
    return os.path.exists(f"{B}/mpi/libkolo_mpi_{abi}.so") and bool(shutil.which(MPIS[abi].launcher[0]))


def command(abi, nranks, *words, launcher=(), kolo=True):
    return [*MPIS[abi].launcher, *launcher, "-n", str(nranks), *([KOLO_MPI] if kolo else []), *words]


def mpis():
    """Those that Kolo was built for, and that can build and start programs here."""
    if os.environ.get("SAN"):
        raise Skip("the MPI libraries are built without the sanitizer")
    found = [abi for abi, mpi in MPIS.items() if is_there(abi) and shutil.which(mpi.c)]
    if not found:
        raise Skip("no MPI: neither openmpi nor mpich was there when Kolo was built, or they can't start programs")
    return found


def built(abi, source="tests/mpi/mpi_program.c", fortran=False):
    out = f"{PLACE.name}/{os.path.basename(source).split('.')[0]}-{abi}"
    if not os.path.exists(out):
        compiler = MPIS[abi].fortran if fortran else MPIS[abi].c
        subprocess.run([compiler, *(["-w"] if fortran else ["-std=c17", "-Wall", "-Wextra", "-Werror"]), "-O1", "-g", source, "-o", out], check=True)
    return out
