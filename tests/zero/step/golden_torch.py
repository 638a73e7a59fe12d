"""Makes golden_torch.json: parameters after 100 steps of torch's optimizers, on gradients that a formula gives. Needs torch
(Debian: python3-torch); prints to standard output. zero_optimize.c has the same formula."""
import json

import torch

STEPS, N = 100, 19
WAYS = [
    ["AdamW", {}],
    ["AdamW", {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1}],
    ["Adam", {}],
    ["Adam", {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1}],
    ["SGD", {"lr": 0.01}],
    ["SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}],
    ["SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.3}],
    ["SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": 1, "weight_decay": 0.1}],
    ["Adagrad", {}],
    ["Adagrad", {"lr": 0.05, "lr_decay": 0.01, "weight_decay": 0.1, "initial": 0.1, "eps": 1e-6}],
]


def noise(i):
    return ((i * 2654435761 & 0xffffffff) >> 8) / 16777216.0 - 0.5


def optimize(name, fields):
    fields, given = dict(fields), {}
    if "beta1" in fields:
        given["betas"] = fields.pop("beta1"), fields.pop("beta2")
    if "initial" in fields:
        given["initial_accumulator_value"] = fields.pop("initial")
    if "nesterov" in fields:
        given["nesterov"] = bool(fields.pop("nesterov"))
    p = torch.tensor([noise(i) for i in range(N)], dtype=torch.float32, requires_grad=True)
    if name == "SGD":
        given.setdefault("lr", fields.get("lr", 1e-3))
    optimizer = getattr(torch.optim, name)([p], **{**fields, **given})
    for step in range(1, STEPS + 1):
        p.grad = torch.tensor([noise(step * 1000 + i) for i in range(N)], dtype=torch.float32)
        optimizer.step()
    return [float(f"{x:.9g}") for x in p.tolist()]


if __name__ == "__main__":
    ways = [{"optimizer": name, "fields": fields, "parameters": optimize(name, fields)} for name, fields in WAYS]
    print(json.dumps({"torch": torch.__version__, "steps": STEPS, "elements": N, "ways": ways}, indent=1))
