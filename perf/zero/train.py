"""zerotrain beside the same GPT in PyTorch with DistributedDataParallel and gloo: tokens per second, memory, losses.

usage: train.py [--ranks N] [--rounds R] [--steps N] [--batch B] [--layers L] [--dim D] [--heads H] [--context C]
                [--data FILE] [--python PYTHON] [--plot FILE.svg|FILE.png] [--out FILE]

Rounds of zerotrain at each stage and of torch, one after the other, so that a machine that changes its mood changes it for all; one
thread a rank. Both begin with the same values and read the same samples, so that their losses are the same but for the order
in which floats are added. Prints medians, and those of the rounds' ratios: above 1 zerotrain is faster. Needs a built tree with
zerotrain, and a Python with torch (Debian: python3-torch).
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


def start(command):
    out = tempfile.TemporaryFile("w+")
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=dict(os.environ, **ONE_THREAD)), out


def run_zerotrain(a, stage):
    text, memory = finish([start([f"{B}/ringrun", "-n", str(a.ranks), f"{B}/zerotrain", "--data", a.data, "--stage", str(stage), "--print",
                                  "1", "--threads", "1", "--validate", "0", *sizes(a)])])
    speeds = [float(x) for x in re.findall(r"tokens/s (\d+)", text)]
    return {"speed": statistics.median(speeds[1:]), "memory": memory, "losses": losses(text)}


def run_torch(a):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    numbers = [a.steps, a.batch, a.layers, a.dim, a.heads, a.context, 0.002, 1]
    text, memory = finish([start([a.python, "-B", f"{HERE}/train_torch.py", str(r), str(a.ranks), str(port), a.data, *map(str, numbers)])
                           for r in range(a.ranks)])
    speeds = [float(x) for x in re.findall(r"tokens/s (\d+)", text)]
    return {"speed": statistics.median(speeds[1:]), "memory": memory, "losses": losses(text)}


def sizes(a):
    return [x for name in ("steps", "batch", "layers", "dim", "heads", "context") for x in (f"--{name}", str(getattr(a, name)))]


def losses(text):
    return [float(x) for x in re.findall(r"^step \d+ loss ([\d.]+)", text, re.M)]


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
    runs = {f"stage {s}": [] for s in STAGES}
    runs["torch"] = []
    for _ in range(a.rounds):
        for stage in STAGES:
            runs[f"stage {stage}"].append(run_zerotrain(a, stage))
        runs["torch"].append(run_torch(a))
    out = open(a.out, "w") if a.out else sys.stdout
    print(f"{machine()}\n\n{a.ranks} ranks, one thread each; {a.layers} layers of {a.dim}, {a.heads} heads, context {a.context}, batch {a.batch};"
          f" {a.steps} updates, {a.rounds} rounds\n{'':10} tokens/s  over torch's      MiB a rank   largest difference of a loss", file=out)
    for name, rounds in runs.items():
        ratio = statistics.median(r["speed"] / t["speed"] for r, t in zip(rounds, runs["torch"]))
        apart = max(abs(x - y) for x, y in zip(rounds[0]["losses"], runs["torch"][0]["losses"]))
        print(f"{name:10} {statistics.median(r['speed'] for r in rounds):8.0f}  {ratio:12.2f}  {max(r['memory'] for r in rounds) / 2**20:14.1f}"
              f"   {apart:.2g}", file=out)
    if a.plot:
        plot(a, {name: runs[name][0]["losses"] for name in ("torch", "stage 0")})


main()
