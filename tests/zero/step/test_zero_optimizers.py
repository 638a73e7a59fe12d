"""The optimizers beside torch's, and beside a restatement of their papers where torch has none."""
import ctypes
import json
import math
import os
import subprocess

from tap import B, Skip, main, run, test

HERE = os.path.dirname(os.path.abspath(__file__))
with open(f"{HERE}/golden_torch.json") as f:
    GOLDEN = json.load(f)
STEPS, N = GOLDEN["steps"], GOLDEN["elements"]


def optimize(name, fields, n=N, steps=STEPS):
    done = run(f"{B}/tests/zero_optimize", name, str(steps), str(n), *(f"{k}={v}" for k, v in fields.items()))
    assert done.returncode == 0, done
    return [float(line) for line in done.stdout.split()]


def noise(i):
    return ((i * 2654435761 & 0xffffffff) >> 8) / 16777216.0 - 0.5


def compare(ours, theirs, what):
    worst = max(abs(a - b) for a, b in zip(ours, theirs)) / max(map(abs, theirs))
    print(f"# {what}: {worst:.2g} of the largest parameter")
    assert len(ours) == len(theirs) and worst <= 1e-6, (what, worst)


def compare_with(ways):
    for way in ways:
        compare(optimize(way["optimizer"], way["fields"]), way["parameters"], f"{way['optimizer']} {way['fields']}")


@test
def adamw_adam_sgd_and_adagrad_equal_torch():
    """Numbers that golden_torch.py printed with Debian's torch."""
    compare_with(GOLDEN["ways"])


@test
def they_equal_the_torch_that_is_installed():
    made = subprocess.run(["/usr/bin/python3", "-B", f"{HERE}/golden_torch.py"], capture_output=True, text=True, timeout=300)
    if "No module named 'torch'" in made.stderr:
        raise Skip("torch is not installed (package python3-torch)")
    assert made.returncode == 0, made
    compare_with(json.loads(made.stdout)["ways"])


def f32(x):
    return ctypes.c_float(x).value


def lion(p, state, g, step, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
    """Chen et al. 2023, algorithm 2."""
    m = state.setdefault("m", [0.0] * len(p))
    for i, x in enumerate(g):
        c = beta1 * m[i] + (1 - beta1) * x
        p[i] = f32(p[i] * f32(1 - lr * weight_decay)) - lr * (math.copysign(1, c) if c else 0)
        m[i] = beta2 * m[i] + (1 - beta2) * x


def lamb(p, state, g, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01):
    """You et al. 2020, algorithm 2, with the identity for phi."""
    m, v = state.setdefault("m", [0.0] * len(p)), state.setdefault("v", [0.0] * len(p))
    update = []
    for i, x in enumerate(g):
        m[i] = beta1 * m[i] + (1 - beta1) * x
        v[i] = beta2 * v[i] + (1 - beta2) * x * x
        r = m[i] / (1 - beta1 ** step) / (math.sqrt(v[i] / (1 - beta2 ** step)) + eps)
        update.append(r + weight_decay * p[i])
    norm, of_update = math.hypot(*p), math.hypot(*update)
    for i, u in enumerate(update):
        p[i] -= lr * (norm / of_update) * u


def restate(rule, n, fields):
    """Doubles, but parameters are floats, and so is what each step multiplies them with: the same rounding a hundred times adds
    up to more than is looked for."""
    p, state = [noise(i) for i in range(n)], {}
    for step in range(1, STEPS + 1):
        rule(p, state, [noise(step * 1000 + i) for i in range(n)], step, **fields)
        p[:] = (ctypes.c_float * n)(*p)
    return p


@test
def lion_and_lamb_equal_their_papers():
    """More elements than a block of the update has, and no multiple of a vector."""
    for name, rule in (("Lion", lion), ("Lamb", lamb)):
        for n in (1, 19, 1031):
            for fields in ({}, {"lr": 0.003, "beta1": 0.8, "beta2": 0.9, "weight_decay": 0.1}):
                compare(optimize(name, fields, n), restate(rule, n, fields), f"{name} {n} {fields}")


main()
