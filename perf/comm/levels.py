"""Are both levels of the order grid at work at once? An all-reduce of hosts with rails (tests/hosts/cluster.py, as root), whose links
inside a host go through TCP and are as slow as a rail, so that neither level hides behind the other. All links of a host share its
loopback interface, which gets as many times the rate.

    B=build python3 perf/comm/levels.py [SHAPE [RATE [BYTES]]]     8x2 200mbit 16777216

The traces (KOLO_TRACE) say when each step was done. A chunk's transfer lasts from when its sender handed it over, or the link had
delivered the chunk before, until its receiver took it. It lies inside if all of that time one of the receiving rank's rail
transfers, in or out, is under way. Prints the share of such chunks, and of the time that chunks take.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../tests/lib", f"{HERE}/../../tests/hosts"]
from cluster import hosts_with_rails, inside, start_job  # noqa: E402
from tap import finish  # noqa: E402

B = os.path.abspath(os.environ.get("B", "build"))


def steps(folder):
    """(rank, track, the rank before or None, the rank after or None, when it was done in ms), in the order in which they were done."""
    found = []
    for path in glob.glob(f"{folder}/*.json"):
        for event in json.load(open(path)):
            if event.get("cat") == "step":
                of = re.fullmatch(r"(\w+):(?: from rank (\d+))?(?: to rank (\d+))?", event["name"])
                found.append((event["pid"], of[1], of[2], of[3], (event["ts"] + event["dur"]) / 1e3))
    return sorted(found, key=lambda step: step[4])


def transfers(folder):
    """{(track, from, to): [(begin, end) in ms, ..]}"""
    sent, taken = {}, {}
    for rank, track, before, after, when in steps(folder):
        if before is not None:
            taken.setdefault((track, int(before), rank), []).append(when)
        if after is not None:
            sent.setdefault((track, rank, int(after)), []).append(when)
    assert sent and all(len(sent[edge]) == len(taken[edge]) for edge in sent)
    return {edge: [(max(begin, last), end) for begin, last, end in zip(sent[edge], [0] + ends, ends)] for edge, ends in taken.items()}


def join(spans):
    """The same times as spans that do not touch each other."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def covered(span, joined):
    """How much of the span they cover, in ms."""
    return sum(max(0, min(span[1], end) - max(span[0], begin)) for begin, end in joined)


def slow_down(machine, device, rate):
    """Without bursts: tbf would let a whole chunk pass at once after a pause, and packets that it can't cut may be as long."""
    subprocess.run(inside(machine, "ip", "link", "set", device, "gso_max_size", "16384"), check=True)
    if device == "lo":
        subprocess.run(inside(machine, "ip", "link", "set", device, "mtu", "16384"), check=True)
    subprocess.run(inside(machine, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "20kb", "latency",
                          "50ms"), check=True)


def main():
    given = sys.argv[1:4] + ["8x2", "200mbit", str(16 << 20)][len(sys.argv[1:4]):]
    hosts, each = map(int, given[0].split("x"))
    number, unit = re.fullmatch(r"(\d+)(\w+)", given[1]).groups()
    with hosts_with_rails(hosts, each, given[1]) as machines, tempfile.TemporaryDirectory() as folder:
        for machine in machines:
            for r in range(each):
                slow_down(machine, f"rail{r}", given[1])
            slow_down(machine, "lo", f"{each * int(number)}{unit}")
        rails = ",".join(f"rail{r}" for r in range(each))
        results = finish(start_job(machines, each, f"{B}/ringbench", "all_reduce", "--transport", "tcp", "--out-of-place", "-b",
                                   given[2], "-e", given[2], "-w", "0", "-i", "1", "-c", "0", KOLO_ORDER="grid",
                                   KOLO_IFACE=rails, KOLO_TRACE=folder), 600)
        assert all(code == 0 for code, _, _ in results), results
        all_of_them = transfers(folder)
    chunks = inside_rails = 0
    time = time_inside = 0.0
    for (track, _, rank), spans in all_of_them.items():
        if track != "group":
            continue
        rail = join(span for edge, of in all_of_them.items() if edge[0] == "rail" and rank in edge[1:] for span in of)
        for span in spans:
            under = covered(span, rail)
            chunks, inside_rails = chunks + 1, inside_rails + (under >= 0.999 * (span[1] - span[0]))
            time, time_inside = time + span[1] - span[0], time_inside + under
    print(f"# {given[0]}, {given[1]}, {given[2]} B: {chunks} chunks inside hosts, {100 * inside_rails / chunks:.1f} % of them inside "
          f"transfers of rails; {100 * time_inside / time:.1f} % of their time")


main()
