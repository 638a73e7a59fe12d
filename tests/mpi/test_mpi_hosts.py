"""kolo-mpi where ranks are on several hosts: namespaces that a bridge joins (tests/hosts/cluster.py)."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hosts"))
from cluster import MPICH, OPENMPI, cluster, until  # noqa: E402
from launch import KOLO_MPI, PLACE, built, mpis  # noqa: E402
from tap import SLOW, Skip, main, test  # noqa: E402

OPENMPI_NET = ("--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include", "eth0",
               "--mca", "oob_tcp_if_include", "eth0")


def command(c, abi, each, *words, more=(), **variables):
    """A job of `each` ranks on each host."""
    names, variables = [h.name for h in c.hosts], {"KOLO_IFACE": "eth0", "KOLO_MPI_CALLS": "16", **variables}
    if abi == "openmpi":
        launcher = [*OPENMPI, *OPENMPI_NET, *more, "--host", ",".join(f"{name}:{each}" for name in names)]
        launcher += [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    else:
        launcher = [*MPICH, "-iface", "eth0", "-hosts", ",".join(f"{name}:{each}" for name in names)]
        launcher += [word for name, value in variables.items() for word in ("-genv", name, value)]
    return [*launcher, "-n", str(len(names) * each), KOLO_MPI, built(abi), *words]


def start(c, abi, each, *words, **variables):
    return c.hosts[0].run(*command(c, abi, each, *words, **variables), timeout=120)


def those():
    """MPICH's ranks do not give their core away: two of them are enough for two cores."""
    return [(abi, 1 if abi == "mpich" else 2) for abi in mpis() if abi != "standard"]


@test
def ranks_on_two_hosts_get_right_results():
    path = f"{PLACE.name}/report"
    with cluster(2) as c:
        for abi, each in those():
            done = start(c, abi, each, "random", "100" if SLOW else "300", os.environ.get("T_SEED", "2026"), KOLO_MPI_CALLS="0",
                         KOLO_MPI_REPORT=path)
            assert done.returncode == 0 and done.stdout == "good\n", (abi, done)
            with open(path) as file:
                text = file.read()
            calls = {name: int(taken) for name, taken in re.findall(r"^(\w+) +\d+ calls +(\d+) on Kolo", text, re.MULTILINE)}
            assert len(calls) == 14 and sum(calls.values()) > 80, text


@test
def mpi_goes_on_while_a_rank_waits_in_kolo():
    with cluster(2) as c:
        for abi, each in those():
            for which in 1, 2, 3:
                done = start(c, abi, each, "progress", str(which))
                assert done.returncode == 0 and done.stdout == "good\n", (abi, which, done)


@test
def without_a_network_for_kolo_all_stay_with_mpi():
    path = f"{PLACE.name}/report"
    with cluster(2) as c:
        for abi, each in those():
            done = start(c, abi, each, "progress", "1", KOLO_IFACE="", KOLO_MPI_REPORT=path)
            assert done.returncode == 0 and done.stdout == "good\n", (abi, done)
            with open(path) as file:
                assert "its ranks are on several hosts, and KOLO_IFACE is not set on all" in (text := file.read()), text


@test
def a_killed_rank_is_named_on_the_other_host():
    if "openmpi" not in mpis():
        raise Skip("MPICH's launcher ends all ranks")
    place = f"{PLACE.name}/said"

    def said(rank):
        path = f"{place}.{rank}"
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    with cluster(2) as c:
        job = c.hosts[0].start(*command(c, "openmpi", 2, "die", place, more=["--enable-recovery"]))
        until(lambda: all("told" in said(rank) for rank in (0, 2, 3)), 30, "not all are told")
        job.kill()  # Open MPI 4's launcher waits for the dead one for ever, if there are several hosts
        job.communicate()
    for rank in 0, 2, 3:
        assert re.search(f"kolo_mpi: MPI_Allreduce on MPI_COMM_WORLD, rank {rank}: rank 1 .* died", said(rank)), said(rank)


main()
