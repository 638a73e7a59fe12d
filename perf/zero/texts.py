"""Tokens per second of texts: zerotrain with and without its cache, on two ranks, and transformers' generate with the same weights.

usage: texts.py [--build DIR] [--python PYTHON] [--rounds R] [--model KIND] [--layers L] [--dim D] [--heads H] [--kv-heads K]
                [--context C] [--tokens N] [--texts T] [--import FOLDER] [--tokens-file FILE]

zerotrain exports a model with random weights, which transformers loads (PYTHON has torch and transformers; without it these
lines are left out); or both load FOLDER, with a FILE of tokens of 16 bits. Each way draws N tokens greedily after one token, T texts at a time; what came is the same. In rounds, each
time in another order. A pair is the time of transformers on one thread, or without it that of the cache, over the time of the
way in one round: above 1 the way is faster. Prints the median of tokens per second of all texts together, and that of pairs with its
95 % interval.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../comm")
from pairs import interval

DATA = "/usr/share/common-licenses/GPL-3"

GENERATE = """
import sys, time, torch
from transformers import AutoModelForCausalLM
folder, threads, first, n, texts = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model.eval()
prompt = torch.full((texts, 1), first)
def run(n):
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0, eos_token_id=None)
run(8)
began = time.monotonic()
run(n)
print(time.monotonic() - began)
"""


def output(command):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} returned {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def zerotrain(a, folder, ranks, *options):
    """Seconds of a token."""
    data = ["--data", a.tokens_file, "--tokens"] if a.tokens_file else ["--data", DATA]
    out = output([f"{a.build}/ringrun", "-n", ranks, f"{a.build}/zerotrain", *data, "--import", folder, "--steps", 0, "--batch", 1,
                  "--context", a.context, "--sample", a.tokens, "--samples", a.texts, "--temperature", 0, "--report", *options])
    return 1 / float(re.search(r"generating .*?(\d+) tokens/s", out)[1])


def transformers(a, folder, threads):
    with open(a.tokens_file or DATA, "rb") as f:
        first = int.from_bytes(f.read(2 if a.tokens_file else 1), "little")
    return float(output([a.python, "-c", GENERATE, folder, threads, first, a.tokens, a.texts])) / a.tokens / a.texts


def arguments():
    p = argparse.ArgumentParser(description="texts of zerotrain beside those of transformers")
    p.add_argument("--build", default="build")
    p.add_argument("--python", default=None)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--import", dest="folder", default=None)
    p.add_argument("--tokens-file", default=None)
    for name, preset in [("rounds", 15), ("layers", 5), ("dim", 128), ("heads", 4), ("kv-heads", 0), ("context", 512), ("tokens", 500),
                         ("texts", 1)]:
        p.add_argument(f"--{name}", type=int, default=preset)
    return p.parse_args()


def main():
    a = arguments()
    with tempfile.TemporaryDirectory() as made:
        folder = a.folder or made
        if not a.folder:
            kv_heads = ["--kv-heads", a.kv_heads] if a.kv_heads else []
            output([f"{a.build}/zerotrain", "--data", DATA, "--steps", 1, "--validate", 0, "--batch", 1, "--model", a.model, "--layers",
                    a.layers, "--dim", a.dim, "--heads", a.heads, *kv_heads, "--context", a.context, "--export", folder])
        ways = {
            "no cache": lambda: zerotrain(a, folder, 1, "--cache", "off"),
            "cache": lambda: zerotrain(a, folder, 1),
            "cache, --exact": lambda: zerotrain(a, folder, 1, "--exact"),
            "cache, --tp 2": lambda: zerotrain(a, folder, 2, "--tp", 2),
            "cache, --tp 2 --exact": lambda: zerotrain(a, folder, 2, "--tp", 2, "--exact"),
        }
        with open(f"{folder}/config.json") as f:
            config = json.load(f)
        if config.get("num_key_value_heads", config.get("n_head", 2)) % 2:
            ways = {name: way for name, way in ways.items() if "--tp" not in name} # heads that no two ranks divide
        if a.python:
            ways["transformers, 1 thread"] = lambda: transformers(a, folder, 1)
            ways["transformers, 2 threads"] = lambda: transformers(a, folder, 2)
        names, times = list(ways), {name: [] for name in ways}
        for k in range(a.rounds):
            for name in names[k % len(names):] + names[:k % len(names)]:
                times[name].append(ways[name]())
            print(f"# round {k + 1} of {a.rounds}", file=sys.stderr)
    beside = "transformers, 1 thread" if a.python else "cache"
    what = os.path.basename(a.folder.rstrip("/")) if a.folder else f"{a.model}, {a.layers} blocks, {a.dim} wide, {a.heads} heads"
    print(f"# {what}, context {a.context}; {a.tokens} tokens, {a.texts} texts; {a.rounds} rounds")
    print(f"# {'way':<24} {'tokens/s':>9}   time of '{beside}' over this [95 % interval]")
    for name in names:
        pairs = sorted(x / y for x, y in zip(times[beside], times[name], strict=True))
        low, high = interval(pairs)
        print(f"{name:<26} {1 / statistics.median(times[name]):>9.0f}   {statistics.median(pairs):.2f} [{low:.2f}, {high:.2f}]")


main()
