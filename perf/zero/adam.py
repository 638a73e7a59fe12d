"""The engine's AdamW in host memory beside torch's AdamW(foreach=True), on as many threads, in turns.

usage: adam.py [--threads N[,N...]] [--rounds R] [--mib MIB] [--tensors N] [--python PYTHON] [--out FILE]

Each round runs zero_adam and torch one after the other, in processes of their own, so that a machine that changes its mood changes it
for both. Of each process the median of its updates; printed are medians over the rounds, and those of the rounds' ratios: above 1
the engine is faster. Of bf16 torch makes what its users do by hand: gradients become floats, masters are updated, parameters are
written back. It gets huge pages too (GLIBC_TUNABLES), which halve its time. Needs a built perf/zero_adam, and a Python with torch
(Debian: python3-torch).
"""
import argparse
import os
import platform
import re
import statistics
import subprocess
import sys

B = os.environ.get("B", "build")
TYPES = ["f32", "bf16"]
UPDATES = 7


def arguments():
    p = argparse.ArgumentParser(description="the engine's AdamW beside torch's")
    p.add_argument("--threads", default="1,2", help="numbers of threads")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mib", type=int, default=32, help="2^20 parameters, as many of them")
    p.add_argument("--tensors", type=int, default=16, help="that torch has them in")
    p.add_argument("--python", default="/usr/bin/python3")
    p.add_argument("--out")
    p.add_argument("--torch", type=int, metavar="N", help="only torch, on N threads: milliseconds of each type")
    return p.parse_args()


def torch_alone(a):
    """What a process of torch's does: the median milliseconds of an update of each type."""
    import time

    import torch
    torch.set_num_threads(a.torch)
    n = (a.mib << 20) // a.tensors
    masters = [torch.zeros(n, requires_grad=True) for _ in range(a.tensors)]
    gradients = [torch.rand(n) * 2 - 1 for _ in range(a.tensors)]
    narrow_gradients = [g.bfloat16() for g in gradients]
    narrow = [torch.zeros(n, dtype=torch.bfloat16) for _ in range(a.tensors)]
    optimizer = torch.optim.AdamW(masters, lr=1e-3, weight_decay=1e-2, foreach=True)

    def update_f32():
        for m, g in zip(masters, gradients):
            m.grad = g
        optimizer.step()

    def update_bf16():
        for m, g in zip(masters, narrow_gradients):
            m.grad = g.float()
        optimizer.step()
        with torch.no_grad():
            for p, m in zip(narrow, masters):
                p.copy_(m)

    for name, update in zip(TYPES, [update_f32, update_bf16]):
        times = []
        for _ in range(UPDATES + 1):
            begin = time.perf_counter()
            update()
            times.append((time.perf_counter() - begin) * 1e3)
        print(name, statistics.median(times[1:]))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_zero(a, threads):
    """Milliseconds, and the fraction of a triad's bytes per second, of each type."""
    rows = re.findall(r"^ +\d+ +(\w+) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+)$", run([f"{B}/perf/zero_adam", str(threads), str(a.mib)]), re.M)
    return {name: (float(ms), float(fraction)) for name, ms, fraction in rows}


def run_torch(a, threads):
    text = run([a.python, "-B", os.path.abspath(__file__), "--torch", str(threads), "--mib", str(a.mib), "--tensors", str(a.tensors)])
    return {name: float(ms) for name, ms in re.findall(r"^(\w+) ([\d.]+)$", text, re.M)}


def describe(a):
    version = run([a.python, "-c", "import torch; print(torch.__version__)"]).strip()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    cpus = re.findall(r"^model name\s*: (.*)", open("/proc/cpuinfo").read(), re.M) or [platform.machine()]
    return f"AdamW on {a.mib} Mi parameters, {a.rounds} rounds; {cpus[0]}, {len(cpus)} cpus; {commit or 'unknown'}, torch {version}"


def main():
    a = arguments()
    if a.torch:
        torch_alone(a)
        return
    lines = [f"# {describe(a)}", f"# {'threads':7} {'types':5} {'zero ms':>9} {'torch ms':>9} {'ratio':>7} {'least':>7} {'of triad':>9}"]
    print("\n".join(lines), flush=True)
    for threads in map(int, a.threads.split(",")):
        zero, torch = [], []
        for _ in range(a.rounds):
            zero.append(run_zero(a, threads))
            torch.append(run_torch(a, threads))
        for name in TYPES:
            ratios = [t[name] / z[name][0] for z, t in zip(zero, torch)]
            lines.append(f"  {threads:7} {name:5} {statistics.median(z[name][0] for z in zero):9.2f} "
                         f"{statistics.median(t[name] for t in torch):9.2f} {statistics.median(ratios):7.2f} {min(ratios):7.2f} "
                         f"{statistics.median(z[name][1] for z in zero):9.2f}")
            print(lines[-1], flush=True)
    if a.out:
        with open(a.out, "w") as out:
            out.write("\n".join(lines) + "\n")


main()
