"""Real programs of MPI (codes.py) compute the same with kolo-mpi, as far as they are installed: make check runs some of them,
by seed, make check-long all."""
import os
import random
import subprocess

from codes import CODES, differences, is_installed, run, taken
from tap import Skip, main, test

LONG = bool(os.environ.get("T_LONG"))
SEED = int(os.environ.get("T_SEED", "2026"))


def sample(names, n):
    print(f"# seed {SEED}")
    return names if LONG else random.Random(SEED).sample(names, min(n, len(names)))


def compare(names, nranks_of):
    codes = {name: CODES[name] for name in names if not os.environ.get("SAN") and is_installed(CODES[name])}
    if not codes:
        raise Skip("none of them is installed: make deps WITH=codes")
    on_kolo = 0
    for name, code in codes.items():
        nranks = nranks_of(code)
        try:
            (alone, _), (again, _) = (run(code, nranks, kolo=False) for _ in range(2))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"# {name}: not compared, it fails without Kolo: {str(error)[:200]!r}")
            continue
        (first, report), (second, _) = (run(code, nranks, kolo=True, KOLO_MPI_CALLS="16") for _ in range(2))
        assert not differences(alone, first), (name, differences(alone, first), report)
        assert alone != again or first == second, (name, [k for k in first if first[k] != second.get(k)])
        on_kolo += taken(report)
        print(f"# {name}, {nranks} ranks: {taken(report)} collectives on Kolo, {'twice equal' if first == second else 'not equal twice'}")
    assert on_kolo > 0, "Kolo took nothing"


@test
def large_programs_compute_the_same():
    names = sample([name for name in CODES if not name.startswith("scalapack")], 3)
    for nranks in (2, 4) if LONG else (4, ):
        compare(names, lambda code, n=nranks: min(n, code.most))


@test
def those_of_scalapack_compute_the_same():
    """MPICH does not give the core away: more than a rank for each core would take hours."""
    names = sample([name for name in CODES if name.startswith("scalapack")], 5)
    compare(names, lambda code: 4 if code.abi == "openmpi" else 2)


main()
