"""zerotrain beside the same GPT in PyTorch over gloo: tokens per second, memory, bytes sent, losses.

usage: train.py [--ranks N] [--rounds R] [--steps N] [--batch B] [--layers L] [--dim D] [--heads H] [--context C]
                [--ways WAY,...] [--data FILE] [--python PYTHON] [--plot FILE.svg|FILE.png] [--out FILE]

Rounds of zerotrain at each stage and of torch in each way (train_torch.py), one after the other, so that a machine that changes its
mood changes it for all; one thread a rank. Both begin with the same values and read the same samples, so that their losses are the
same but for the order in which floats are added. How much that alone moves them is shown by zerotrain with OpenBLAS's oldest
kernels. Prints medians, and those of the rounds' ratios to the fastest way of torch with 95 % intervals: above 1 zerotrain
is faster. A round's speed is the median after a quarter of its updates. Bytes are what one rank sends for an update: zerotrain's as counted, torch's through the loopback
interface. Needs a built tree with zerotrain, and a Python with torch (Debian: python3-torch, with --ways ddp). OPENBLAS_CORETYPE is not
passed on: zerotrain finds the kernels.
"""
import argparse
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../comm")
from pairs import interval  # noqa: E402

B = os.environ.get("B", "build")
HERE = os.path.dirname(os.path.abspath(__file__))
STAGES = [0, 1, 2, 3]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def arguments():
    p = argparse.ArgumentParser(description="zerotrain beside PyTorch")
    for name, preset in [("ranks", 2), ("rounds", 5), ("steps", 60), ("batch", 8), ("layers", 5), ("dim", 128), ("heads", 4),
                         ("context", 128)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    p.add_argument("--data", default="/usr/share/common-licenses/GPL-3")
    p.add_argument("--python", default="/usr/bin/python3")
    p.add_argument("--ways", default="ddp,fsdp2,ddp+compile,fsdp2+compile,deepspeed1,deepspeed2,deepspeed3")
    p.add_argument("--plot")
    p.add_argument("--out")
    return p.parse_args()


def finish(processes):
    """Their outputs, and the most resident memory that one of them had, or one of its children."""
    texts, most = [], 0
    for p, out in processes:
        _, status, usage = os.wait4(p.pid, 0)
        out.seek(0)
        texts.append(out.read())
        if status:
            sys.exit(f"{' '.join(p.args)}: status {status}\n{texts[-1]}")
        most = max(most, usage.ru_maxrss * 1024)
    return "".join(texts), most


def start(command, **more):
    out = tempfile.TemporaryFile("w+")
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**env, **ONE_THREAD, **more}), out


def result(text, memory, sent):
    speeds = [float(x) for x in re.findall(r"tokens/s (\d+)", text)]
    return {"speed": statistics.median(speeds[len(speeds) // 4 + 1:]), "memory": memory, "sent": sent,
            "losses": [float(x) for x in re.findall(r"^step \d+ loss ([\d.]+)", text, re.M)]}


def run_zerotrain(a, stage, *options, **more):
    text, memory = finish([start([f"{B}/ringrun", "-n", str(a.ranks), f"{B}/zerotrain", "--data", a.data, "--stage", str(stage), "--print",
                                  "1", "--threads", "1", "--validate", "0", "--report", *options, *sizes(a)], **more)])
    sent = sum(float(x) for x in re.findall(r"^  (?:gradients|parameters) +([\d.]+) MB in", text, re.M))
    return result(text, memory, sent * 1e6 / a.steps)


def through_loopback():
    with open("/sys/class/net/lo/statistics/tx_bytes") as f:
        return int(f.read())


def run_torch(a, way):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    numbers = [a.steps, a.batch, a.layers, a.dim, a.heads, a.context, 0.002, 1]
    before = through_loopback()
    text, memory = finish([start([a.python, "-B", f"{HERE}/train_torch.py", way, str(r), str(a.ranks), str(port), a.data, *map(str, numbers)])
                           for r in range(a.ranks)])
    return result(text, memory, (through_loopback() - before) / a.ranks / a.steps)


def sizes(a):
    return [x for name in ("steps", "batch", "layers", "dim", "heads", "context") for x in (f"--{name}", str(getattr(a, name)))]


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"Kolo {commit}, {model}, {os.cpu_count()} cores"


def plot(a, curves):
    lines = "\n".join(f"{i + 1} {' '.join(str(c[i]) for c in curves.values())}" for i in range(a.steps))
    terminal = "pngcairo" if a.plot.endswith(".png") else "svg"
    draws = ", ".join(f"$d using 1:{k} with lines lw {7 - 2 * k} title '{name}'" for k, name in enumerate(curves, 2))
    subprocess.run(["gnuplot"], text=True, check=True, input=f"set terminal {terminal} size 800,500 background 'white'\nset output '{a.plot}'\n"
                   f"set xlabel 'update'\nset ylabel 'loss, nats a byte'\n$d << E\n{lines}\nE\nplot {draws}\n")


def main():
    a = arguments()
    ways = a.ways.split(",")
    runs = {name: [] for name in [f"stage {s}" for s in STAGES] + ways}
    for _ in range(a.rounds):
        for stage in STAGES:
            runs[f"stage {stage}"].append(run_zerotrain(a, stage))
        for way in ways:
            runs[way].append(run_torch(a, way))
    best = max(ways, key=lambda way: statistics.median(r["speed"] for r in runs[way]))
    runs["old kernels"] = [run_zerotrain(a, 0, "--products", "openblas", OPENBLAS_CORETYPE="Prescott")]
    out = open(a.out, "w") if a.out else sys.stdout
    versions = subprocess.run([a.python, "-c", "import torch; print('torch', torch.__version__)\ntry:\n import deepspeed\n print('DeepSpeed',"
                               " deepspeed.__version__)\nexcept ImportError: pass"], capture_output=True, text=True).stdout.split("\n")
    print(f"{machine()}; {', '.join(v for v in versions if v and '[' not in v)}\n\n{a.ranks} ranks, one thread each; {a.layers} layers of {a.dim},"
          f" {a.heads} heads, context {a.context}, batch {a.batch}, f32; {a.steps} updates, {a.rounds} rounds\n"
          f"{'':14} tokens/s  over {best}'s{'':8} MiB a rank  kB sent an update   losses apart: in 12 updates, in all", file=out)
    for name, rounds in runs.items():
        ratios = [r["speed"] / t["speed"] for r, t in zip(rounds, runs[best])]
        low, high = interval(ratios)
        apart = [abs(x - y) for x, y in zip(rounds[0]["losses"], runs[best][0]["losses"])]
        print(f"{name:14} {statistics.median(r['speed'] for r in rounds):8.0f}  {statistics.median(ratios):8.2f} [{low:.2f}, {high:.2f}]"
              f"  {max(r['memory'] for r in rounds) / 2**20:12.1f}  {statistics.median(r['sent'] for r in rounds) / 1e3:12.1f}"
              f"  {max(apart[:12]):12.2g}  {max(apart):10.2g}", file=out)
    if a.plot:
        plot(a, {name: runs[name][0]["losses"] for name in (best, "stage 0")})


main()
