"""libkolo_mpi from the outside: programs of MPI, with kolo-mpi and without, for each MPI that is installed."""
import os
import re
import shutil
import subprocess

from launch import KOLO_MPI, MPIS, PLACE, built, command, mpis
from tap import SLOW, Skip, main, test

LONG = bool(os.environ.get("T_LONG"))
# Before a communicator joins, MPI works. Open MPI 4.1 chooses how to do an allgatherv by the size of the rank's own type; where ranks
# name different ones some wait for ever.
ONE_WAY = {"openmpi": ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allgatherv_algorithm", "3"]}
FORTRAN = """program sums
    use mpi
    implicit none
    integer :: rank, n, error, k
    double precision :: x(1000), y(1000)
    call mpi_init(error)
    call mpi_comm_rank(mpi_comm_world, rank, error)
    call mpi_comm_size(mpi_comm_world, n, error)
    do k = 1, 20
        x = rank + k
        call mpi_allreduce(x, y, 1000, mpi_double_precision, mpi_sum, mpi_comm_world, error)
        if (any(y /= n * k + n * (n - 1) / 2)) error stop 1
        call mpi_bcast(k, 1, mpi_integer, 0, mpi_comm_world, error)
        call mpi_allreduce(mpi_in_place, x, 1000, mpi_double_precision, mpi_max, mpi_comm_world, error)
        if (any(x /= n - 1 + k)) error stop 2
    end do
    call mpi_finalize(error)
end program
"""


def start(abi, nranks, *words, launcher=(), timeout=600, **variables):
    return subprocess.run(command(abi, nranks, *words, launcher=launcher), env={**os.environ, "KOLO_MPI_CALLS": "16", **variables},
                          capture_output=True, text=True, timeout=timeout)


def program(abi, nranks, *words, **more):
    done = start(abi, nranks, built(abi), *words, **more)
    assert done.returncode == 0 and done.stdout == "good\n", (abi, nranks, words, more, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done


def report(abi, nranks, *words, **variables):
    """What rank 0 says of each call: how often, and how often on Kolo."""
    path = f"{PLACE.name}/report"
    program(abi, nranks, *words, KOLO_MPI_REPORT=path, **variables)
    with open(path) as file:
        text = file.read()
    calls = {}
    for name, n, taken in re.findall(r"^(\w+) +(\d+) calls +(\d+) on Kolo", text, re.MULTILINE):
        before = calls.get(name, (0, 0))
        calls[name] = (before[0] + int(n), before[1] + int(taken))
    return calls, text


@test
def ranks_that_differ_in_all_that_is_local_get_right_results():
    programs, seed = (4000 if LONG else 100 if SLOW else 400), int(os.environ.get("T_SEED", "2026"))
    for abi in mpis():
        for nranks in (1, 2, 3, 4, 5) if LONG else (2, 5):
            calls, text = report(abi, nranks, "random", str(programs), str(seed + nranks), KOLO_MPI_CALLS="3", launcher=ONE_WAY.get(abi, ()))
            taken = sum(taken for _, taken in calls.values())
            assert len(calls) == 14 and (nranks == 1 or taken > programs / 3), text


@test
def mpi_goes_on_while_a_rank_waits_in_kolo():
    for abi in mpis():
        for which in 1, 2, 3:
            for nranks in 2, 3:
                program(abi, nranks, "progress", str(which), timeout=60)


@test
def communicators_go_when_some_ranks_are_not_done():
    for abi in mpis():
        for _ in range(20 if LONG else 2):
            program(abi, 3, "free", KOLO_MPI_CALLS="2")


@test
def communicators_of_the_same_ranks_share_one_of_kolos():
    """Each of 30 does 48 collectives. That is too little for a ring of its own, but MPI_COMM_WORLD gets one, after 128, and each third of the
    others shares it: those that come later, after 16."""
    for abi in mpis():
        for nranks in (4, 5) if abi == "openmpi" or LONG else (4, ):  # MPICH does not give the core away
            for share in ("on", "off") if abi == "openmpi" or LONG else ("on", ):
                calls, text = report(abi, nranks, "many", KOLO_MPI_SHARE=share)
                assert calls["Bcast"] == (1080, 1080 - 31 * 8), text
        calls, text = report(abi, 3, "many", KOLO_MPI_CALLS="", KOLO_MPI_SHARE="off")
        assert calls["Bcast"] == (1080, 360 - 64), text
        calls, text = report(abi, 3, "many", KOLO_MPI_CALLS="")
        assert 360 - 64 + 6 * 16 < calls["Bcast"][1] <= 360 - 64 + 10 * 16, text
        assert "KOLO_MPI_SHARE=no: want on or off" in program(abi, 2, "progress", "1", KOLO_MPI_SHARE="no").stderr


@test
def a_killed_rank_is_named():
    if "openmpi" not in mpis():
        raise Skip("MPICH's launcher ends all ranks, in half of the runs also if it is told not to")
    place = f"{PLACE.name}/said"
    done = start("openmpi", 3, built("openmpi"), "die", place, launcher=["--enable-recovery"], timeout=60)
    for rank in 0, 2:
        with open(f"{place}.{rank}") as file:
            said = file.read()
        assert f"rank {rank}: told" in said, (said, done)
        assert re.search(f"kolo_mpi: MPI_Allreduce on MPI_COMM_WORLD, rank {rank}: rank 1 .* died", said), (said, done)


@test
def fortran_is_taken_too():
    found = [abi for abi in mpis() if shutil.which(MPIS[abi].fortran) and shutil.which("gfortran")]
    if not found:
        raise Skip("no gfortran for MPI")
    source = f"{PLACE.name}/sums.f90"
    with open(source, "w") as file:
        file.write(FORTRAN)
    for abi in found:
        path = f"{PLACE.name}/fortran"
        done = start(abi, 3, built(abi, source, fortran=True), KOLO_MPI_REPORT=path)
        assert done.returncode == 0, done
        with open(path) as file:
            assert re.search(r"Allreduce +40 calls +\d\d on Kolo", text := file.read()), text


@test
def it_counts_or_does_nothing_if_it_is_told_so():
    for abi in mpis():
        done = program(abi, 2, "progress", "1", KOLO_MPI="count")
        assert re.search(r"Barrier +30 calls +0 on Kolo", done.stderr) and "KOLO_MPI=count" in done.stderr, done
        assert program(abi, 2, "progress", "1", KOLO_MPI="off").stderr == ""
        assert "KOLO_MPI=of: want on, count or off" in program(abi, 2, "progress", "1", KOLO_MPI="of").stderr
        calls, text = report(abi, 2, "progress", "1", KOLO_MPI_CALLS="1000")
        assert calls["Barrier"] == (30, 0) and "left to MPI: too little was done" in text, text


@test
def rank_0_decides_for_all():
    for abi in mpis():
        for wish in "KOLO_MPI=off", "KOLO_MPI=count", "KOLO_MPI_CALLS=5":
            other = [":", "-n", "1", "env", wish, KOLO_MPI, built(abi), "progress", "1"]
            program(abi, 1, "progress", "1", *other, timeout=60)


@test
def the_script_says_what_it_wants():
    mpis()
    for words in (), ("--what", ):
        done = subprocess.run([KOLO_MPI, *words], capture_output=True, text=True)
        assert done.returncode == 125 and "want a program to run" in done.stderr, done
    done = subprocess.run([KOLO_MPI, "true"], capture_output=True, text=True)
    assert done.returncode == 125 and "want KOLO_MPI_ABI" in done.stderr, done
    done = subprocess.run([KOLO_MPI, "true"], env={**os.environ, "KOLO_MPI_ABI": "other"}, capture_output=True, text=True)
    assert done.returncode == 125 and "no libkolo_mpi_other.so" in done.stderr, done


main()
