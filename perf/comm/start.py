"""How long ringrun takes to start many ranks: on one host, and on several (tests/hosts/cluster.py, as root), in turn. Prints the
seconds until the last agent has answered, which are ssh's, and from then until the last rank has joined.

    B=build python3 perf/comm/start.py [RANKS [HOSTS [ROUNDS]]]
"""
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../tests/lib", f"{HERE}/../../tests/hosts"]
from cluster import cluster  # noqa: E402

B = os.path.abspath(os.environ.get("B", "build"))


def start(host, *options):
    """Seconds until all agents have answered, and from then until all have joined."""
    begin = time.time()
    done = host.run(f"{B}/ringrun", "-v", *options, f"{B}/perf/join", timeout=300)
    assert done.returncode == 0, done
    answered = float(re.search(r"ringrun: ([\d.]+) s: all \d+ agents have answered", done.stderr)[1])
    joined = max(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("joined"))
    return answered, joined / 1e6 - begin - answered


def main():
    ranks, hosts, rounds = (int(word) for word in sys.argv[1:] + ["256", "8", "15"][len(sys.argv) - 1:])
    with cluster(hosts) as c:
        first, all_hosts = c.hosts[0], ",".join(f"{h.name}:{ranks // hosts}" for h in c.hosts)
        one, many = [], []
        for _ in range(rounds):
            one.append(start(first, "-n", str(ranks)))
            many.append(start(first, "--host", all_hosts))
    ssh = statistics.median(answered for answered, _ in many)
    alone, apart = (statistics.median(joined for _, joined in times) for times in (one, many))
    ratios = sorted(m[1] / o[1] for o, m in zip(one, many))
    print(f"# {ranks} ranks, medians of {rounds} rounds in turn")
    print(f"one host:  {alone:.2f} s until the last has joined")
    print(f"{hosts} hosts:   {ssh:.2f} s until the last agent has answered (ssh), then {apart:.2f} s until the last has joined")
    print(f"ratio:     {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


main()
