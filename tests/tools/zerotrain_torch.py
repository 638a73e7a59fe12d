"""Reads what zerotrain_gradients prints, computes the same model with torch in double, and prints loss and gradients as JSON."""
import json
import sys

import torch
import torch.nn.functional as F

given = json.load(sys.stdin)
heads, batch, context = given["heads"], given["batch"], given["context"]
w = {}
for name, t in given["tensors"].items():
    rows, columns = t["shape"]
    w[name] = torch.tensor(t["values"], dtype=torch.float64).reshape([rows, columns] if columns else [rows]).requires_grad_()
text = torch.tensor(given["text"])
tokens, targets = text[:-1].reshape(batch, context), text[1:]
dim = w["bytes"].shape[1]


def linear(x, name):
    return F.linear(x, w[name + ".weight"], w[name + ".bias"])


def norm(x, name):
    return F.layer_norm(x, (dim,), w[name + ".gain"], w[name + ".bias"])


x = w["bytes"][tokens] + w["places"][:context]
unseen = torch.triu(torch.full((context, context), -float("inf"), dtype=torch.float64), 1)
for i in range(given["layers"]):
    q, k, v = (p.reshape(batch, context, heads, dim // heads).transpose(1, 2)
               for p in linear(norm(x, f"{i}.norm1"), f"{i}.qkv").split(dim, -1))
    shares = torch.softmax(q @ k.transpose(-1, -2) / (dim // heads) ** 0.5 + unseen, -1)
    x = x + linear((shares @ v).transpose(1, 2).reshape(batch, context, dim), f"{i}.project")
    wide = linear(norm(x, f"{i}.norm2"), f"{i}.widen")
    bent = 0.5 * wide * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (wide + 0.044715 * wide ** 3)))
    x = x + linear(bent, f"{i}.narrow")
loss = F.cross_entropy((norm(x, "norm") @ w["bytes"].T).reshape(-1, 256), targets)
loss.backward()
print(json.dumps({"loss": loss.item(), "gradients": {name: t.grad.flatten().tolist() for name, t in w.items()}}))
