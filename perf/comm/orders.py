"""The orders of additions beside each other on several hosts (tests/hosts/cluster.py, as root): is another one faster than the ring?

    B=build python3 perf/comm/orders.py [HOSTS [RANKS_OF_EACH [ROUNDS [LARGEST_BYTES [ORDER [SMALLEST_BYTES [FACTOR [PROCESSORS]]]]]]]]

Prints every size of the collectives that add, as before_after.py does; pairs.py says what a pair is, and when a size is behind. PROCESSORS: "shared", all hosts have all of this machine's, and nothing is
bound to them: each would bind its first rank to the first one. Or "parted": each host has one of them, in turn, so that its ranks don't wait for those of most other hosts.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../tests/lib", f"{HERE}/../../tests/hosts"]
from cluster import cluster  # noqa: E402
from pairs import measure, report  # noqa: E402

B = os.path.abspath(os.environ.get("B", "build"))
COLLECTIVES = {"tree": ["all_reduce", "reduce_scatter", "reduce"]}
COLLECTIVES["grid"] = COLLECTIVES["tree"] + ["all_gather", "broadcast"]  # which depend on the groups as well


def part_processors(hosts):
    """What is started on a host from now on runs where its first process and its server for ssh do; on the first host also where
    this one does."""
    mine = sorted(os.sched_getaffinity(0))
    for k, host in enumerate(hosts):
        for pid in host.own:
            os.sched_setaffinity(pid, {mine[k % len(mine)]})
    os.sched_setaffinity(0, {mine[0]})


def main():
    words = sys.argv[1:] + ["8", "2", "15", "65536", "tree", "8", "8", "shared"][len(sys.argv) - 1:]
    assert words[7] in ("shared", "parted"), words[7]
    hosts, ranks, rounds, most = (int(word) for word in words[:4])
    collectives, orders = COLLECTIVES[words[4]], ["ring", words[4]]
    with cluster(hosts) as c:
        if words[7] == "parted":
            part_processors(c.hosts)

        def bench(order, collective):
            where = ",".join(f"{h.name}:{ranks}" for h in c.hosts)
            done = c.hosts[0].run(f"{B}/ringrun", "--host", where, "--bind", "none", f"{B}/ringbench", collective, "--order", order,
                                  "-b", words[5], "-e", str(most), "-f", words[6], "-c", "0", "--out-of-place", "--json", "-", timeout=600)
            assert done.returncode == 0, done
            found = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
            return {(r["bytes"], "out"): r["time_us"] for r in found}

        pairs = measure(orders, rounds, collectives, bench)
    behind = [cell for collective in collectives for cell in report(collective, pairs[collective], orders)]
    print("#\n# behind: " + ("; ".join(behind) if behind else "none"))


main()
