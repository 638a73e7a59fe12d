"""What programs of an MPI gain from kolo-mpi: the same MPI with it and without, in turns.

usage: kolo_mpi.py [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F] [--mpicc COMMAND] [--mpirun COMMAND]
                   [--library NAME] [COLLECTIVE ...]
       kolo_mpi.py --codes [--rounds R] [--ranks N] [CODE ...]
       kolo_mpi.py --imb [--rounds R] [--ranks N] [BENCHMARK ...]

COLLECTIVE is one of mpi_collectives.c, by default those that issue most: all_reduce, broadcast, all_gather, reduce_scatter. The
MPI is Debian's Open MPI, or what --mpicc, --mpirun and --library (its shared library) name; what a call costs more with
kolo-mpi comes first (mpi_overhead.c).

With --codes: the wall time of real programs (tests/mpi/codes.py), whose figures are compared too. By default all but
ScaLAPACK's tests, which take half a second each: with Kolo it is 1 to 6 ms longer until a program runs, and a join takes 2 to 5.

With --imb: Intel's IMB-MPI1 on its own MPI (make build/peers/intel/made), a thousand operations of each size; by default Allreduce,
Bcast, Allgather and Reduce_scatter. It does not check results. IMB-MT can, which has two threads on each rank with a communicator
each: that runs first, and stops this program if a result is wrong.

A pair is the time without over the time with Kolo in one round: above 1 Kolo is faster (pairs.py says when a cell is behind).
Exit status: 0, or 1 if a cell is behind; run it twice.
"""
import argparse
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../tests/lib", f"{HERE}/../../tests/mpi"]
from codes import CODES, differences, is_installed, run  # noqa: E402
from launch import KOLO_MPI, MPIS  # noqa: E402
from pairs import measure, output, report, times  # noqa: E402
from peers import peers  # noqa: E402

B = os.environ.get("B", "build")
SIDES = ["MPI", "Kolo"]


def arguments():
    p = argparse.ArgumentParser(description="programs of an MPI with kolo-mpi and without")
    for name, preset in [("rounds", 15), ("ranks", 2), ("min", 8), ("max", 8 << 20), ("factor", 8)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    p.add_argument("--mpicc", default=MPIS["openmpi"].c)
    p.add_argument("--mpirun", default=" ".join(MPIS["openmpi"].launcher))
    p.add_argument("--library", default="libmpi.so.40")
    kind = p.add_mutually_exclusive_group()
    kind.add_argument("--codes", action="store_true")
    kind.add_argument("--imb", action="store_true")
    p.add_argument("subjects", nargs="*")
    return p.parse_intermixed_args()


def built(a, name, *more):
    os.makedirs(f"{B}/perf", exist_ok=True)
    out = f"{B}/perf/{name}.kolo_mpi"
    output([*a.mpicc.split(), "-O2", "-Wno-stringop-overflow", "-o", out, f"perf/comm/{name}.c", *more])
    return out


def print_overhead(a):
    """The program calls Kolo too: it is linked with the libkolo that kolo-mpi has."""
    program = built(a, "mpi_overhead", "-Iinclude", f"-L{B}", f"-Wl,-rpath,{os.path.abspath(B)}", "-lkolo", "-ldl")
    print(f"# {output([*a.mpirun.split(), '-n', str(a.ranks), KOLO_MPI, program, a.library]).strip()}")


def collectives(a):
    program = built(a, "mpi_collectives")
    print_overhead(a)
    subjects = a.subjects or ["all_reduce", "broadcast", "all_gather", "reduce_scatter"]

    def once(side, collective):
        return times(output([*a.mpirun.split(), "-n", str(a.ranks), *([KOLO_MPI] if side == "Kolo" else []), program, collective,
                             str(a.min), str(a.max), str(a.factor)]))

    return subjects, once


def codes(a):
    subjects = a.subjects or [name for name in CODES if not name.startswith("scalapack")]
    missing = [name for name in subjects if name not in CODES or not is_installed(CODES[name])]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}: make deps WITH=codes")
    alone = {name: run(CODES[name], a.ranks, kolo=False)[0] for name in subjects}

    def once(side, name):
        since = time.time()
        figures, _ = run(CODES[name], a.ranks, kolo=side == "Kolo")
        seconds = time.time() - since
        wrong = differences(alone[name], figures)
        if wrong:
            sys.exit(f"{name}, {side}: {wrong}")
        return {("run", ""): seconds * 1e6}

    return subjects, once


def check_by_imb(start):
    """Results of operations in two threads at once, by IMB-MT."""
    os.environ["KOLO_MPI_REPORT"] = path = f"{B}/perf/imb.report"
    text = start("Kolo", "IMB-MT", "-thread_level", "multiple", "-check", "on", "-count", "1,100,1000,30000", "-repeat", "100",
                 "BarrierMT", "BcastMT", "ReduceMT", "AllreduceMT")
    del os.environ["KOLO_MPI_REPORT"]
    with open(path) as file:
        taken = sum(int(n) for n in re.findall(r"calls +(\d+) on Kolo", file.read()))
    wrong = text.count("CHECK FAILURES")
    print(f"# IMB-MT -check: {wrong} wrong results; {taken} collectives of rank 0 were on Kolo")
    if wrong or not taken:
        sys.exit(text)


def imb(a):
    """Lines of IMB-MPI1: bytes, repetitions, the least, greatest and average time."""
    found = {name: peer for name, peer in peers(False).items() if name.startswith("intel")}
    if not found:
        sys.exit("no Intel MPI: make build/peers/intel/made")
    name, peer = found.popitem()
    print(f"# {name}: {peer.version}")
    os.environ.update(peer.environment(a.ranks))

    def start(side, *words):
        return output([*peer.command(a.ranks), *([KOLO_MPI] if side == "Kolo" else []), *words])

    def once(side, benchmark):
        text = start(side, "IMB-MPI1", "-iter", "1000", "-msglog", "3:21", benchmark)
        lines = (line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ +\d", line))
        return {(int(words[0]), ""): float(words[4]) for words in lines if int(words[0])}

    check_by_imb(start)
    return a.subjects or ["Allreduce", "Bcast", "Allgather", "Reduce_scatter"], once


def main():
    a = arguments()
    subjects, once = (codes if a.codes else imb if a.imb else collectives)(a)
    pairs = measure(SIDES, a.rounds, subjects, once)
    behind = [cell for subject in subjects for cell in report(subject, pairs[subject], names=SIDES)]
    print("#\n# behind: " + ("; ".join(behind) if behind else "none"))
    sys.exit(1 if behind else 0)


main()
