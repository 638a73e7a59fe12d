"""An all-reduce of two hosts over a shaped network, beside the MPIs that are there and gloo: what of the rate is reached, and how soon
do 8 bytes come?

    B=build python3 perf/comm/shaped.py [--rounds R] [--sizes BYTES,...] [RATE ...]     5, six sizes to 16 MiB, 1gbit 5gbit 10gbit

Hosts are network namespaces that a bridge joins (tests/hosts/cluster.py, as root); tbf lets each send at RATE. Each has a rank, and
all is TCP over IPv4. Nothing is bound to cores: MPIs would bind the first rank of either host to the same one. Rounds are
interleaved. With two ranks each sends as many bytes as the vector has, so the share of the rate is 8 K / time / RATE. Of a full
frame 1448 of 1514 bytes are the program's: 0.956 is the most that lasts; a burst of 128 KiB is free. MPIs start on the other host by
nsenter in place of ssh. Those that can be told to use one interface only are measured. Gloo is that of the torch in
build/torch/venv (make deps WITH=torch), if it is there.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, f"{HERE}/../../tests/lib", f"{HERE}/../../tests/hosts"]
import peers  # noqa: E402
from cluster import hosts_with_rails, inside, start_job  # noqa: E402
from pairs import interval  # noqa: E402
from side_by_side import machine  # noqa: E402
from tap import finish  # noqa: E402

B = os.path.abspath(os.environ.get("B", "build"))
PYTHON = os.path.abspath("build/torch/venv/bin/python3")
AGENT = """#!/bin/sh
# In place of ssh: options, then a host, then a command.
while case $1 in -*) true;; *) false;; esac; do shift; done
case $1 in {cases} *) echo "no host $1" >&2; exit 1;; esac
shift
exec nsenter -t "$pid" -n -u sh -c "$*"
"""
GLOO = """
import json, os, statistics, sys, time, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://10.80.0.1:5100", rank=int(os.environ["KOLO_RANK"]), world_size=2)
torch.set_num_threads(1)
for size in map(int, sys.argv[1].split(",")):
    x, took = torch.zeros(size // 4), []
    end = time.monotonic() + 0.5
    more = torch.ones(1)
    while more.item():
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        took.append(time.perf_counter() - begin)
        more[0] = len(took) < 8 or (len(took) < 2000 and time.monotonic() < end)
        dist.broadcast(more, 0)
    slowest = torch.tensor(took[len(took) // 4:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(json.dumps({"bytes": size, "time_us": slowest.median().item() * 1e6}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def times(out):
    found = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
    return {row["bytes"]: row["time_us"] for row in found if not row.get("in_place")}


def of_job(machines, *command, **variables):
    results = finish(start_job(machines, 1, *command, KOLO_IFACE="rail0", GLOO_SOCKET_IFNAME="rail0", **variables), 600)
    if any(code for code, _, _ in results):
        sys.exit(f"{' '.join(command)[:100]}: {results}")
    return times(results[0][1])


def kolo(machines, sizes, folder):
    found = {}
    for size in sizes:
        found.update(of_job(machines, f"{B}/ringbench", "all_reduce", "--transport", "tcp", "--out-of-place", "-b", str(size), "-e",
                            str(size), "-c", "0", "--json", "-"))
    return found


def gloo(machines, sizes, folder):
    return of_job(machines, PYTHON, "-c", GLOO, ",".join(map(str, sizes)))


def mpi(name, peer):
    hydra = name.startswith("mpich")
    network = ["rail0" if word == "lo" else word for word in peer.network]
    launch = ["-launcher", "ssh", "-launcher-exec"] if hydra else \
        ["--bind-to", "none", "--mca", "plm_rsh_agent" if name == "openmpi4" else "plm_ssh_agent"]
    hosts = ["-hosts", "10.80.0.1,10.80.0.2"] if hydra else ["--host", "10.80.0.1:1,10.80.0.2:1"]
    program = peers.built(peer, name, f"{HERE}/mpi_collectives.c", f"{B}/perf")

    def measure(machines, sizes, folder):
        found = {}
        for size in map(str, sizes):
            command = [peer.launcher[0], *peers.AS_ROOT * (not hydra), *launch, f"{folder}/agent", *hosts, *network, "-n", "2",
                       program, "all_reduce", size, size, "2"]
            done = subprocess.run(inside(machines[0], *command), capture_output=True, text=True, env=peer.environment(1), timeout=600)
            if done.returncode:
                sys.exit(f"{' '.join(command)} returned {done.returncode}\n{done.stdout}{done.stderr}")
            found.update(times(done.stdout))
        return found
    return measure


def write_agent(machines, folder):
    cases = " ".join(f"10.80.0.{k + 1}) pid={m.pid};;" for k, m in enumerate(machines))
    with open(f"{folder}/agent", "w", opener=lambda name, flags: os.open(name, flags, 0o700)) as f:
        f.write(AGENT.format(cases=cases))


def bits_a_second(rate):
    found = re.fullmatch(r"(\d+)([mg])bit", rate)
    if not found:
        sys.exit(f"{rate}: want a rate like 500mbit or 10gbit")
    return int(found[1]) * {"m": 1e6, "g": 1e9}[found[2]]


def report(rate, sizes, took, rounds):
    others = [name for name in took if name != "kolo"]
    print(f"#\n# {rate}: us\n# {'bytes':>10} " + " ".join(f"{name:>10}" for name in took) + "  share of the rate   best other / Kolo")
    for size in sizes:
        medians = {name: statistics.median(run[size] for run in took[name]) for name in took}
        ratios = sorted(min(took[name][k][size] for name in others) / took["kolo"][k][size] for k in range(rounds)) if others else []
        beside = f"{statistics.median(ratios):.2f} [{', '.join(f'{x:.2f}' for x in interval(ratios))}]" if ratios else "-"
        print(f"  {size:>10} " + " ".join(f"{medians[name]:>10.1f}" for name in took) +
              f"  {8 * size / medians['kolo'] * 1e6 / bits_a_second(rate):>17.3f}   {beside}", flush=True)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")],
                       default=[8, 4096, 65536, 1 << 20, 4 << 20, 16 << 20])
    parse.add_argument("rates", nargs="*", default=["1gbit", "5gbit", "10gbit"], metavar="RATE")
    a = parse.parse_args()
    for rate in a.rates:
        bits_a_second(rate)
    others = peers.peers(True)
    ways = {"kolo": kolo, **({"gloo": gloo} if os.path.exists(PYTHON) else {}), **{name: mpi(name, peer) for name, peer in others.items()}}
    print(f"# all-reduce of f32 over TCP, 2 hosts of a rank, {a.rounds} rounds; {machine()}")
    print("# beside " + ", ".join(f"{name}: {peer.version}" for name, peer in others.items()))
    for rate in a.rates:
        with hosts_with_rails(2, 1, rate) as machines, tempfile.TemporaryDirectory() as folder:
            write_agent(machines, folder)
            took = {name: [] for name in ways}
            for _ in range(a.rounds):
                for name, way in ways.items():
                    took[name].append(way(machines, a.sizes, folder))
        report(rate, a.sizes, took, a.rounds)


main()
