"""Real programs of MPI, as Debian packs them: how each is run, and which figures of its output must be the same with Kolo.

A figure is a text, and how far it may be from what the MPI alone computes: 0 for not at all, None for any distance, as sums in another
order give other last digits. Two runs of the same program must give the same texts, where the MPI alone does so."""
import glob
import os
import re
import shutil
import subprocess
import tempfile
from typing import Callable, NamedTuple

from launch import command, is_there

SCALAPACK = next(iter(glob.glob("/usr/lib/*/scalapack")), "/usr/lib/scalapack")
PEPTIDE = "/usr/share/lammps/examples/peptide"
HPCC_INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
PSEUDOPOTENTIALS = "/usr/share/espresso/pseudo"
MPI4PY = "/usr/lib/python3/dist-packages/mpi4py"
SILICON = f""" &control
    prefix='silicon', outdir='.', tstress=.true., tprnfor=.true., pseudo_dir='{PSEUDOPOTENTIALS}/'
 /
 &system
    ibrav=2, celldm(1)=10.20, nat=2, ntyp=1, ecutwfc=18.0
 /
 &electrons
    mixing_beta=0.7, conv_thr=1.0d-8
 /
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 8 8 8 1 1 1
"""

# The largest systems that the test has memory for, on a column of ranks.
SIZES = " ".join(str(n) for n in range(410, 510, 10))
SYSTEMS = f"""'SCALAPACK, LU factorization input file'
'MPI Machine'
'LU.out'
6
10
{SIZES}
{SIZES}
4
4 8 16 32
2
1 9
1
3
1
{{nranks}}
1
3.0
F
"""

# Conjugate gradients on a line of points, some for each rank.
PYTHON = """import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
n, each = 4096 * comm.size, 4096
own = slice(comm.rank * each, comm.rank * each + each)
x, whole, sums = np.zeros(each), np.empty(n), np.empty(1)


def dot(a, b):
    comm.Allreduce(np.array([a @ b]), sums)
    return sums[0]


def times(p):
    comm.Allgather(p, whole)
    padded = np.pad(whole, 1)
    return ((2 + 1e-2) * padded[1:-1] - padded[:-2] - padded[2:])[own]


r = np.sin(np.arange(n))[own]
p, steps, square = r.copy(), 0, dot(r, r)
while square > 1e-20:
    q = times(p)
    a = square / dot(p, q)
    x, r, steps = x + a * p, r - a * q, steps + 1
    before, square = square, dot(r, r)
    p = r + square / before * p
norm = dot(x, x)
if comm.rank == 0:
    print(f"{steps} steps, norm {norm!r}")
"""


class Code(NamedTuple):
    abi: str
    words: list
    prepare: Callable  # (folder, nranks): writes the input
    figures: Callable  # (folder, output): {name: (text, tolerance)}
    needs: str = "/"  # what must be there besides the program
    most: int = 64  # ranks on which it always ends, with the MPI alone


def found(pattern, text, tolerance):
    """{name: (text, tolerance)} of all places of a pattern; they are numbered."""
    all_of_them = re.findall(pattern, text)
    assert all_of_them, f"no {pattern} in:\n{text[-3000:]}"
    return {f"{pattern} {k}": (t, tolerance) for k, t in enumerate(all_of_them)}


# ---- Each program ----------------------------------------------------------------------------------------------------------------------

def prepare_hpcc(folder, nranks):
    """The example is for 2 x 2 ranks."""
    with open(HPCC_INPUT) as file:
        text = file.read()
    with open(f"{folder}/hpccinf.txt", "w") as file:
        file.write(re.sub(r"^2( +Ps)$", f"{nranks // 2}\\1", text, flags=re.MULTILINE))


def hpcc(folder, _):
    with open(f"{folder}/hpccoutf.txt") as file:
        text = file.read()
    return {**found(r"Success=(\d)", text, 0), **found(r"\|\|Ax-b\|\|.*\.\.\. (\w+)", text, 0), **found(r"PTRANS_residual=(.*)", text, 0),
            **found(r"HPL_[XA]normI=(.*)", text, 1e-6), **found(r"HPL_RnormI=(.*)", text, None),
            **found(r"MPIRandomAccess\w*_ErrorsFraction=(.*)", text, 0)}


def prepare_espresso(folder, _):
    with open(f"{folder}/silicon.in", "w") as file:
        file.write(SILICON)


def espresso(_, text):
    return {**found(r"!    total energy += +(-\d+\.\d+) Ry", text, 1e-6), **found(r"achieved in +(\d+) iterations", text, 0),
            **found(r"P= +(-?\d+\.\d+)", text, 1e-2), **found(r"estimated scf accuracy +< +(\S+) Ry", text, None)}


def prepare_lammps(folder, _):
    shutil.copy(f"{PEPTIDE}/data.peptide", folder)
    with open(f"{PEPTIDE}/in.peptide") as file:
        text = file.read()
    columns = "thermo_style custom step temp pe etotal press\nthermo_modify format float %.15g\n"
    with open(f"{folder}/in.peptide", "w") as file:
        file.write(re.sub(r"^thermo_style.*$", "", text, flags=re.MULTILINE).replace("fix\t\t1 all nvt", columns + "fix\t\t1 all nvt"))


def lammps(_, text):
    """Later steps go apart, however small the first difference was."""
    rows = re.findall(r"^ +(\d+)((?: +-?\d+(?:\.\d+)?){4}) *$", text, re.MULTILINE)
    assert [int(step) for step, _ in rows] == list(range(0, 301, 50)), text[-3000:]
    return {f"step {step} column {k}": (value, 1e-6 if int(step) <= 100 else None) for step, columns in rows
            for k, value in enumerate(columns.split())}


def fenicsx(_, text):
    """The mesh is not cut in the same way twice, with the MPI alone too, so the iterations differ by one or two."""
    return {**found(r"\*\*\* Number of Krylov iterations: (\d+)", text, 0.2), **found(r"\*\*\* Solution norm: +(\S+)", text, 1e-5),
            **found(r"KSP Residual norm (\S+)", text, None)}


def scalapack(_, text):
    """How many of its tests were good, and how many not."""
    counts = {word: str(len(re.findall(rf"\b{word}\b", text, re.IGNORECASE))) for word in ("passed", "failed", "completed", "skipped")}
    assert int(counts["passed"]) + int(counts["completed"]) > 0 and " 0 tests completed and passed" not in text, text[-3000:]
    return {word: (count, 0) for word, count in counts.items()}


def prepare_python(folder, _):
    with open(f"{folder}/gradients.py", "w") as file:
        file.write(PYTHON)


def python(_, text):
    return {**found(r"(\d+) steps", text, 0.05), **found(r"norm (?:np\.float64\()?([\d.e+-]+)", text, 1e-8)}


def prepare_systems(folder, nranks):
    with open(f"{folder}/LU.dat", "w") as file:
        file.write(SYSTEMS.format(nranks=nranks))


def nothing(folder, nranks):
    """There is no input."""


# PT-SCOTCH, which cuts its mesh, hangs in one of twenty runs on 4 ranks, in messages between ranks.
FENICSX = ["dolfinx-scaling-test", "--scaling_type", "strong", "--ndofs", "40000", "-ksp_type", "cg", "-ksp_rtol", "1.0e-8", "-ksp_monitor"]
ELASTICITY = ["--problem_type", "elasticity", "-pc_type", "gamg", "-pc_gamg_coarse_eq_limit", "1000", "-mg_levels_ksp_type", "chebyshev",
              "-mg_levels_pc_type", "jacobi", "-mg_levels_esteig_ksp_type", "cg"]
POISSON = ["--problem_type", "poisson", "-pc_type", "hypre", "-pc_hypre_type", "boomeramg", "-pc_hypre_boomeramg_strong_threshold", "0.5"]
CODES = {
    "hpcc": Code("openmpi", ["hpcc"], prepare_hpcc, hpcc, needs=HPCC_INPUT),
    "espresso": Code("openmpi", ["pw.x", "-in", "silicon.in"], prepare_espresso, espresso, needs=PSEUDOPOTENTIALS),
    "lammps": Code("openmpi", ["lmp", "-in", "in.peptide"], prepare_lammps, lammps, needs=PEPTIDE),
    "elasticity": Code("openmpi", [*FENICSX, *ELASTICITY], nothing, fenicsx, most=2),
    "mpi4py": Code("openmpi", ["/usr/bin/python3", "gradients.py"], prepare_python, python, needs=MPI4PY),
    "systems": Code("openmpi", [f"{SCALAPACK}/openmpi-tests/xdlu"], prepare_systems, scalapack),
    "poisson": Code("openmpi", [*FENICSX, *POISSON], nothing, fenicsx, most=2),
}


def add_scalapack(abi):
    """All its programs, with their inputs. Some are left out: two hang in half of all runs and two crash, with the MPI alone too."""
    for folder in "", "PBLAS", "BLACS":
        place = f"{SCALAPACK}/{abi}-tests/{folder}".rstrip("/")
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
            if re.fullmatch(r"x\w+|\w+tst", name) and name not in ("xsllt", "xdllt", "xCbtest", "xFbtest"):
                CODES[f"scalapack-{abi}-{name}"] = Code(abi, [f"{place}/{name}"],
                                                        lambda to, _, place=place: copy_inputs(place, to), scalapack)


def copy_inputs(place, to):
    for name in os.listdir(place):
        if name.endswith(".dat"):
            shutil.copy(f"{place}/{name}", to)


for flavour in "openmpi", "mpich":
    add_scalapack(flavour)


# ---- Running -----------------------------------------------------------------------------------------------------------------------------

def is_installed(code):
    return is_there(code.abi) and bool(shutil.which(code.words[0])) and os.path.exists(code.needs)


def run(code, nranks, kolo, timeout=400, **variables):
    """The figures of one run, and the report of Kolo's."""
    with tempfile.TemporaryDirectory(prefix="kolo-codes-") as folder:
        code.prepare(folder, nranks)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "KOLO_MPI_REPORT": f"{folder}/report", **variables}
        done = subprocess.run(command(code.abi, nranks, *code.words, kolo=kolo), cwd=folder, env=environment, capture_output=True, text=True,
                              errors="replace", timeout=timeout)
        assert done.returncode == 0, (code.words, kolo, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        report = ""
        if kolo:
            with open(f"{folder}/report") as file:
                report = file.read()
        return code.figures(folder, done.stdout), report


def is_near(a, b, tolerance):
    return a == b if tolerance == 0 else abs(float(a) - float(b)) <= tolerance * max(abs(float(a)), abs(float(b)))


def differences(alone, other):
    """What of two runs' figures is farther apart than it may be. Those of any distance may also be missing: a residual after the last step."""
    return [f"{name}: {text} without Kolo, {other.get(name, ('nothing', 0))[0]} with it" for name, (text, tolerance) in alone.items()
            if tolerance is not None and (name not in other or not is_near(text, other[name][0], tolerance))]


def taken(report):
    """Calls on Kolo, of rank 0."""
    return sum(int(n) for n in re.findall(r"(\d+) on Kolo", report))
