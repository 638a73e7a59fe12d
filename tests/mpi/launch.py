"""The MPIs that may be installed: how a program is built for each and started, with kolo-mpi or without. All on one host, over loopback
at most."""
import os
import shutil
from typing import NamedTuple

from tap import B

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


def is_there(abi):
    """Can its programs start here, and was Kolo built for them?"""
    return os.path.exists(f"{B}/mpi/libkolo_mpi_{abi}.so") and bool(shutil.which(MPIS[abi].launcher[0]))


def command(abi, nranks, *words, launcher=(), kolo=True):
    return [*MPIS[abi].launcher, *launcher, "-n", str(nranks), *([KOLO_MPI] if kolo else []), *words]
