"""The order grid beside the order ring on hosts with several networks (tests/hosts/cluster.py, as root): does each rail carry its
share, and is it in use all the time?

    B=build python3 perf/comm/rails.py [ROUNDS [RATE [BYTES [SHAPE ...]]]]     3 200mbit 16777216 4x4 3x3 2x2 8x2

A shape is HOSTSxRANKS, with a rail for each rank of a host; tbf lets each host send at RATE on each rail. What a rail can carry is
measured by an all-reduce of two hosts of one rank. The limit is the time of 2(K/L)(H-1)/H bytes at that rate, half for a
reduce-scatter and an all-gather. Of a reduce and a broadcast it is that of K/L bytes, which the last host does not send. Prints
medians of the rounds, in each of which both orders run in turn. Also prints how far the bytes that left through the interfaces,
frames' heads and acknowledgements included, are from that number: of the farthest one, or with a root of the nearest.
"""
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../tests/lib", f"{HERE}/../../tests/hosts"]
from cluster import carried, hosts_with_rails, start_job  # noqa: E402
from tap import finish  # noqa: E402

B = os.path.abspath(os.environ.get("B", "build"))
ROOTED = ["reduce", "broadcast"]
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", *ROOTED]


def seconds(machines, each, order, collective, size, times=2):
    rails = ",".join(f"rail{r}" for r in range(each))
    results = finish(start_job(machines, each, f"{B}/ringbench", collective, "--out-of-place", "-b", str(size), "-e", str(size),
                               "-w", "1", "-i", str(times), "-c", "0", "--json", "-", KOLO_ORDER=order, KOLO_IFACE=rails), 600)
    assert all(code == 0 for code, _, _ in results), results
    line = next(line for line in results[0][1].splitlines() if line.startswith("{"))
    return json.loads(line)["time_us"] / 1e6


def worst_share(machines, each, collective, size, expected):
    """What an operation sends through each interface, in runs of 2 and of 6, by `expected`: the value that is farthest from 1."""
    FEW, MANY = 2, 6
    cards = [(m, f"rail{r}") for m in machines for r in range(each)]
    counts = []
    for times in (FEW, MANY):
        before = [carried(*card) for card in cards]
        seconds(machines, each, "grid", collective, size, times)
        counts.append([carried(*card) - b for card, b in zip(cards, before)])
    shares = [(many - few) / (MANY - FEW) / expected for few, many in zip(*counts)]
    return (min if collective in ROOTED else max)(shares, key=lambda share: abs(share - 1))


def main():
    given = sys.argv[1:4] + ["3", "200mbit", str(16 << 20)][len(sys.argv[1:4]):]
    rounds, rate, size = int(given[0]), given[1], int(given[2])
    with hosts_with_rails(2, 1, rate) as machines:
        rail = statistics.median(size / seconds(machines, 1, "ring", "all_reduce", size) for _ in range(rounds))
    print(f"# a rail carries {rail / 1e6:.2f} MB/s; {size} B\n#\n# shape collective     ring s  grid s  limit s  limit/grid  ring/grid  "
          "(N-1)/(H-1)  bytes/model")
    for shape in sys.argv[4:] or ["4x4", "3x3", "2x2", "8x2"]:
        hosts, each = map(int, shape.split("x"))
        with hosts_with_rails(hosts, each, rate) as machines:
            for collective in COLLECTIVES:
                took = {order: [] for order in ("ring", "grid")}
                for k in range(rounds):
                    for order in ("ring", "grid") if k % 2 else ("grid", "ring"):
                        took[order].append(seconds(machines, each, order, collective, size))
                ring, grid = (statistics.median(took[order]) for order in ("ring", "grid"))
                sent = (1 + (collective == "all_reduce")) * size / each * (hosts - 1) / hosts
                if collective in ROOTED:
                    sent = size / each
                share = worst_share(machines, each, collective, size, sent)
                limit = sent / rail
                print(f"{shape:>7} {collective:14} {ring:7.3f} {grid:7.3f} {limit:8.3f} {limit / grid:11.3f} {ring / grid:10.2f} "
                      f"{(hosts * each - 1) / (hosts - 1):12.2f} {share:12.4f}", flush=True)


main()
