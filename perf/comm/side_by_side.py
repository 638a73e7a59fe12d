"""Kolo's collectives beside those of the MPI libraries that are installed: interleaved rounds, ratios, medians.

usage: side_by_side.py [--rounds R] [--ranks N] [--min BYTES] [--max BYTES] [--factor F] [--window K] [--network]
                       [--threads] [--common-start] [--peers NAME,...] [--out FILE] [--plot FILE.svg] [COLLECTIVE ...]

COLLECTIVE is one of ringbench's but barrier; without one, all of them. --peers takes some of the libraries only, as with more
ranks than cores, where MPICH gives no core away: openmpi5,intel2021. `make perf PEERS=pypi` brings the newest Open MPI, MPICH and
Intel MPI (peers.py). With --window send_recv is K messages one way, which are in
flight together, and an answer: bandwidth and message rate; without, messages to and fro: latency.

Each round runs ringbench, in plain memory and in memory from kolo_alloc, and then each MPI library, in plain memory and in memory
from MPI_Alloc_mem, so that a machine that changes its mood changes it for all. The mood is what lines.c shows of two cores: "near"
where it does not matter through how much memory 64 KiB go, "far" where 2 MiB are faster than 64 KiB, "very far" where stores past
the caches are. A collective whose round began in one mood and ended in another is measured again, at most twice. The table is
over all rounds; below it stands what each mood shows that had a collective for at least 6 rounds. With two ranks each round also
runs lines.c for what they give each other in an all-reduce, reduce-scatter, all-gather or all-to-all: the bare exchange, through
shared memory, of as many bytes as the vector has, or half of them.
Whoever ends it by a signal (INT or TERM) gets the table of the rounds that were complete.
With --common-start all ranks begin an operation at the same time by the host's clock, and its time counts from there. Without, a
rank's time counts from when it leaves its own library's barrier, which may let root go first.
With --threads Kolo's ranks are threads of one process. The others' are processes all the same.
With --network the others' buffers are from MPI_Alloc_mem, and all goes over TCP through the loopback interface: Kolo's own links (tcp) and libfabric's (ofi), Open MPI, and
PyPI's MPICH through libfabric. They are told to use nothing else. What a plain exchange of as many bytes takes both ways at
once (sockets.c) stands beside large sizes.

A ratio is that of the best other library's time and Kolo's in one round: above 1 Kolo is faster. plain/plain: both in plain memory;
plain/alloc: Kolo in plain memory, the others in theirs; alloc/alloc: each in its own. Needs a built tree
(make perf), and the program gnuplot for --plot.
"""
import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys

import peers
from pairs import interval

B = os.environ.get("B", "build")
TRIES = 3  # of a round whose mood changes
FEWEST = 6  # rounds whose extremes are a 95 % interval of the median


def output(command, env=None):
    """What a run prints."""
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def rows(command, env=None):
    """{(bytes, in_place): microseconds} of one run."""
    found = (json.loads(line) for line in output(command, env).splitlines() if line.startswith("{"))
    return {(r["bytes"], r["in_place"]): r["time_us"] for r in found}


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"{model}, {os.cpu_count()} processors, commit {commit}"


COLLECTIVES = ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "send_recv"]


# What the table calls it: options of ringbench, with and without --network.
ON_ONE_HOST = {"plain": ["--memory", "host"], "alloc": ["--memory", "alloc"]}
OVER_TCP = {"tcp": ["--transport", "tcp"], "ofi": ["--transport", "ofi"]}
# The others' memory: options of mpi_collectives.c.
OTHERS_MEMORY = {"plain": ["--plain"], "alloc": []}
# What is divided: Kolo's way and the others' memory.
RATIOS_ON_ONE_HOST = [("plain", "plain"), ("plain", "alloc"), ("alloc", "alloc")]
RATIOS_OVER_TCP = [("tcp", "alloc"), ("ofi", "alloc")]


def mood():
    """near, far or very far."""
    _, narrow, _, wide, streamed = map(float, output([f"{B}/perf/lines", "65536"]).splitlines()[-1].split())
    if 1.5 * streamed < wide:
        return "very far"
    return "far" if 1.3 * wide < narrow else "near"


# Of two ranks: the bytes of the vector over those that each gives the other.
EXCHANGED = {"all_reduce": 1, "reduce_scatter": 2, "all_gather": 2, "all_to_all": 2}
EXCHANGES = range(256, (64 << 10) + 1)  # bytes


def sizes_of(a):
    sizes = [a.min]
    while sizes[-1] * a.factor <= a.max:
        sizes.append(sizes[-1] * a.factor)
    return sizes


def exchanges(a):
    """{bytes: microseconds} of the bare exchange, in the best of its ways."""
    sizes = sorted({size // EXCHANGED[coll] for coll in a.collectives if coll in EXCHANGED for size in sizes_of(a)} & set(EXCHANGES))
    if a.ranks > 2 or a.network or not sizes:
        return {}
    found = [line.split() for line in output([f"{B}/perf/lines", *map(str, sizes)]).splitlines() if not line.startswith("#")]
    return {int(row[0]): min(map(float, row[1:])) for row in found}


def sockets(a):
    """{bytes: microseconds} of plain exchanges over TCP, from 8 MiB on."""
    sizes = [a.max // a.factor**k for k in range(9) if a.max // a.factor**k >= 8 << 20]
    return {size: us for (size, _), us in rows([f"{B}/perf/sockets", *map(str, sizes)]).items()} if sizes else {}


def copies(a):
    """{bytes: microseconds} in which each rank's core copies the largest size, all at once."""
    return {a.max: float(output([f"{B}/perf/copies", str(a.ranks), str(a.max)]))}


def one_round(a, others, coll):
    """{Kolo's way, or an other's name and memory: rows}"""
    sizes = [str(a.min), str(a.max), str(a.factor)]
    window = [str(a.window)] if a.window else []
    flight = ["--in-flight", *window] if coll == "send_recv" and window else []
    start = ["--common-start"] if a.common_start else []
    found = {who: rows([f"{B}/ringbench", "-n", str(a.ranks), coll, "-b", sizes[0], "-e", sizes[1], "-f", sizes[2], "-c", "0",
                        *options, "--json", "-", *flight, *start]) for who, options in a.kolo.items()}
    for name, peer in others.items():
        for memory in a.memories:
            command = [*peer.command(a.ranks, a.network), f"{B}/perf/mpi_collectives.{name}", *OTHERS_MEMORY[memory], *start, coll,
                       *sizes, *window]
            found[name, memory] = rows(command, peer.environment(a.ranks))
    return found


def measure(a, others):
    """A list over rounds for each (who, collective), the moods of each round of a collective, and the times of copies."""
    sides = [*a.kolo, *((name, memory) for name in others for memory in a.memories)]
    times = {(side, coll): [] for side in sides for coll in a.collectives}
    moods, limits, bare = [], [], []
    try:
        for k in range(a.rounds):
            limit, of_round = sockets(a) if a.network else copies(a), []
            for coll in a.collectives:
                for _ in range(TRIES):
                    before, found, after = mood(), one_round(a, others, coll), mood()
                    if before == after:
                        break
                of_round.append((coll, found, before if before == after else "changing"))
            bare.append(exchanges(a))
            limits.append(limit)
            moods.extend(mood_ for _, _, mood_ in of_round)
            for coll, found, _ in of_round:
                for who, of in found.items():
                    times[who, coll].append(of)
            print(f"# round {k + 1} of {a.rounds}: {', '.join(moods[-len(a.collectives):])}", file=sys.stderr)
    except KeyboardInterrupt:
        a.rounds = len(limits)
        if not a.rounds:
            sys.exit("side_by_side.py: ended before the first round was complete")
    return times, moods, limits, bare


def ratios(times, others, coll, pair, key):
    """The best other library's time over Kolo's, by round. pair: Kolo's way and the others' memory."""
    who, memory = pair
    best = [min(times[(p, memory), coll][k][key] for p in others) for k in range(len(times[who, coll]))]
    return [b / t[key] for b, t in zip(best, times[who, coll])]


def median_of(times, side, coll, key):
    return statistics.median(t[key] for t in times[side, coll])


def best_peer(times, others, memory, coll, key):
    """The one with the least median."""
    return min(others, key=lambda p: median_of(times, (p, memory), coll, key))


def report(out, a, others, times, moods, limits, bare):
    """Prints the table; returns the medians of the ratios, {(collective, Kolo's way/the others' memory): {(bytes, in_place): ratio}}."""
    medians = {(coll, "/".join(pair)): {} for coll in a.collectives for pair in a.pairs}
    report_head(out, a, others, moods, limits)
    both, behind = len(a.memories) > 1, []
    for coll in a.collectives:
        print(f"#\n# {coll}\n# {'bytes':>10} {'place':>5}" + "".join(f" {n + ' us':>11}" for n in [*a.kolo, *others]) +
              " alloc's us" * both + "".join(f" {'ratio ' + '/'.join(pair):>19}" for pair in a.pairs) + " best", file=out)
        for key in sorted(times[next(iter(a.kolo)), coll][0]):
            best = {memory: best_peer(times, others, memory, coll, key) for memory in a.memories}
            line = f"  {key[0]:>10} {'in' if key[1] else 'out':>5}"
            for side in [*a.kolo, *((name, a.memories[0]) for name in others), *[(best["alloc"], "alloc")] * both]:
                line += f" {median_of(times, side, coll, key):>11.2f}"
            for pair in a.pairs:
                r, name = ratios(times, others, coll, pair, key), "/".join(pair)
                low, high = interval(r)
                medians[coll, name][key] = statistics.median(r)
                line += f" {medians[coll, name][key]:>5.2f} [{low:.2f}, {high:.2f}]"
                if high < 1:
                    behind.append(f"{coll} of {key[0]} {'in' if key[1] else 'out of'} place, {name}: {medians[coll, name][key]:.2f}")
            print(f"{line} {' '.join(dict.fromkeys(best.values()))}", file=out, flush=True)
        for pair in a.pairs:
            all_sizes = medians[coll, "/".join(pair)].values()
            print(f"# {coll}, {'/'.join(pair)}: geometric mean of the ratios {statistics.geometric_mean(all_sizes):.2f}, "
                  f"least {min(all_sizes):.2f}", file=out)
        report_limits(out, a, times, coll, limits)
        report_exchanges(out, a, times, coll, bare)
    print("#\n# behind: " + ("; ".join(behind) or "none"), file=out)
    report_moods(out, a, others, times, moods)
    return medians


def report_head(out, a, others, moods, limits):
    kind = ", Kolo's threads of one process" if a.threads else ""
    print(f"# f32, sum, root 0, {a.ranks} ranks{kind}, {a.rounds} interleaved rounds; {machine()}", file=out)
    if a.common_start:
        print("# time from when all ranks begin, by the host's clock", file=out)
    print("# beside " + ", ".join(f"{name}: {peer.version}" for name, peer in others.items()), file=out)
    print("# rounds of a collective: " + ", ".join(f"{moods.count(m)} {m}" for m in sorted(set(moods))), file=out)
    for size in limits[0]:
        print(f"# {size} bytes by {limit(a)}: {statistics.median(of[size] for of in limits):.0f} us", file=out)
    print(f"# us: median over rounds of the median of the slowest rank; {', '.join(a.kolo)}: Kolo; the others in\n"
          f"# {a.memories[0]} memory (alloc: MPI_Alloc_mem's). alloc's: the best of them in that.\n"
          "# ratio Kolo's memory/theirs: best other / Kolo within a round, median [95 % interval of the median]; above 1 Kolo is\n"
          "# faster. best: the other whose median is least, in each memory.", file=out)


def limit(a):
    return "a plain exchange both ways over TCP" if a.network else "memcpy on each rank's core, all at once"


def report_limits(out, a, times, coll, limits):
    for who in a.kolo:
        for size in limits[0]:
            of_limit = [f"{statistics.median([x[size] / t[size, p] for x, t in zip(limits, times[who, coll])]):.2f} {place} place"
                        for p, place in ((False, "out of"), (True, "in")) if (size, p) in times[who, coll][0]]
            print(f"# {who}: {size} bytes at {', '.join(of_limit)} of the rate of {limit(a)}", file=out, flush=True)


def report_exchanges(out, a, times, coll, bare):
    """How long the bare exchange took, as a share of the operation, in plain memory."""
    who = next(iter(a.kolo))
    for size in sizes_of(a) if coll in EXCHANGED else []:
        given = size // EXCHANGED[coll]
        of_exchange = [f"{statistics.median([x[given] / t[size, p] for x, t in zip(bare, times[who, coll])]):.2f} {place} place"
                       for p, place in ((False, "out of"), (True, "in")) if given in bare[0] and (size, p) in times[who, coll][0]]
        if of_exchange:
            print(f"# {who}: {size} bytes at {', '.join(of_exchange)} of the rate of a bare exchange", file=out, flush=True)


def report_moods(out, a, others, times, moods):
    """What the rounds of each mood show by themselves, if there was more than one."""
    for i, coll in enumerate(a.collectives):
        of_rounds = moods[i::len(a.collectives)]
        for mood_ in sorted(set(of_rounds)) if len(set(of_rounds)) > 1 else []:
            if of_rounds.count(mood_) < FEWEST:
                continue
            for pair in a.pairs:
                cells = {key: [r for r, m in zip(ratios(times, others, coll, pair, key), of_rounds) if m == mood_]
                         for key in sorted(times[pair[0], coll][0])}
                mean = statistics.geometric_mean(statistics.median(r) for r in cells.values())
                behind = [f"{key[0]} {'in' if key[1] else 'out of'} place {statistics.median(r):.2f}"
                          for key, r in cells.items() if interval(r)[1] < 1]
                print(f"# {coll}, {'/'.join(pair)}, {of_rounds.count(mood_)} rounds {mood_}: geometric mean {mean:.2f}, "
                      f"behind: {', '.join(behind) or 'none'}", file=out)


def plot(path, a, others, medians):
    """A panel for each collective: the medians' ratio over sizes, out of place solid, in place dashed."""
    names = ["/".join(pair) for pair in a.pairs]
    colours = dict(zip(names, ("#0072b2", "#009e73", "#d55e00")))
    script = [f"set terminal svg size 900,{340 * ((len(a.collectives) + 1) // 2)} noenhanced font 'sans,12' background 'white'",
              f"set output '{path}'", "set logscale x 2", "set logscale y 2", "set grid", "set key below",
              "set format x '%.0b%B'", "set xlabel 'bytes of the vector'", "set ylabel 'time of the better peer / Kolo'",
              f"set multiplot layout {(len(a.collectives) + 1) // 2},{min(2, len(a.collectives))} "
              f"title 'Kolo beside {' and '.join(others)}, {a.ranks} ranks on one host{', TCP only' * a.network}: above 1 Kolo is faster'"]
    for coll in a.collectives:
        curves, data = ["1 with lines lc 'black' notitle"], []
        for who in names:
            for in_place in sorted({place for _, place in medians[coll, who]}):
                curves.append(f"'-' with linespoints pt {6 if in_place else 7} ps 0.6 dt {2 if in_place else 1} lc rgb '{colours[who]}' "
                              f"title '{who}, {'in' if in_place else 'out of'} place'")
                points = sorted((k[0], ratio) for k, ratio in medians[coll, who].items() if k[1] == in_place)
                data += [f"{size} {ratio:.4f}" for size, ratio in points] + ["e"]
        script += [f"set title '{coll}'", "plot " + ", ".join(curves), *data]
    done = subprocess.run(["gnuplot"], input="\n".join([*script, "unset multiplot", ""]), text=True)
    if done.returncode:
        sys.exit(f"gnuplot returned {done.returncode}")


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--rounds", type=int, default=15)
    parse.add_argument("--ranks", type=int, default=2)
    parse.add_argument("--min", type=int, default=8)
    parse.add_argument("--max", type=int, default=128 << 20)
    parse.add_argument("--factor", type=int, default=4)
    parse.add_argument("--window", type=int, default=0)
    parse.add_argument("--network", action="store_true")
    parse.add_argument("--threads", action="store_true")
    parse.add_argument("--common-start", action="store_true")
    parse.add_argument("--peers")
    parse.add_argument("--out")
    parse.add_argument("--plot")
    parse.add_argument("collectives", nargs="*", default=COLLECTIVES, metavar="COLLECTIVE")
    a = parse.parse_args()
    if a.ranks < 2 or a.factor < 2 or set(a.collectives) - set(COLLECTIVES):
        parse.error(f"at least 2 ranks, a factor of at least 2, and collectives of: {' '.join(COLLECTIVES)}")
    if a.common_start and a.ranks > os.cpu_count():
        parse.error(f"--common-start: each of the {a.ranks} ranks needs a processor; there are {os.cpu_count()}")
    a.min = max(a.min, 4 * a.ranks)  # each rank's part of the vector holds an element
    a.max = sizes_of(a)[-1]
    if a.plot and not shutil.which("gnuplot"):
        sys.exit("gnuplot is not installed: make deps")
    a.kolo = {who: [*options, *(["--threads"] if a.threads else [])] for who, options in (OVER_TCP if a.network else ON_ONE_HOST).items()}
    a.memories = ["alloc"] if a.network else list(OTHERS_MEMORY)
    a.pairs = RATIOS_OVER_TCP if a.network else RATIOS_ON_ONE_HOST
    others = peers.peers(a.network)
    if a.peers:
        chosen = a.peers.split(",")
        if set(chosen) - set(others):
            parse.error(f"--peers {a.peers}: there are: {' '.join(others) or 'none (make deps WITH=perf)'}")
        others = {name: others[name] for name in chosen}
    if not others:
        sys.exit("no MPI library is installed that this can be compared with: make deps WITH=perf")
    os.makedirs(f"{B}/perf", exist_ok=True)
    for name, peer in others.items():
        peers.built(peer, name, "perf/comm/mpi_collectives.c", f"{B}/perf")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    times, moods, limits, bare = measure(a, others)
    with open(a.out, "w") if a.out else sys.stdout as out:
        medians = report(out, a, others, times, moods, limits, bare)
    if a.plot:
        plot(a.plot, a, others, medians)


if __name__ == "__main__":
    main()
