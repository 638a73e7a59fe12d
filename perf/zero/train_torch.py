"""The model of zerotrain in PyTorch: one rank over gloo, for train.py.

usage: train_torch.py WAY RANK NRANKS PORT DATA STEPS BATCH LAYERS DIM HEADS CONTEXT LR SEED

WAY is ddp (DistributedDataParallel), fsdp2 (fully_shard of each block and of the whole), or deepspeed1, 2 or 3, which are
ZeRO's stages; with "+compile" behind it the model goes through torch.compile. The same sizes, first values, samples,
optimizer and schedule as zerotrain without a config, one thread; prints the same `step N loss X tokens/s Y`. Attention is
torch's fused one where torch has it (from 2.0 on). For ddp Torch 1.13 is enough (Debian's python3-torch).
"""
import math
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

MASK = (1 << 64) - 1


def mix_bits(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15)) if isinstance(x, np.ndarray) else np.array([(int(x) + 0x9E3779B97F4A7C15) & MASK], np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def make_key(key, number):
    """Of one number, or of an array of them."""
    if isinstance(number, np.ndarray):
        return mix_bits(np.uint64(key) ^ mix_bits(number))
    return int(mix_bits(key ^ int(mix_bits(number)[0]))[0])


def draw_normal(key, n):
    i = np.arange(n, dtype=np.uint64) * np.uint64(2)

    def uniform(counter):
        return ((make_key(key, counter) >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52

    return np.sqrt(-2 * np.log(uniform(i))) * np.cos(2 * math.pi * uniform(i + np.uint64(1)))


class Data:
    """zerotrain's order of the text."""

    def __init__(self, path, context, seed):
        with open(path, "rb") as f:
            self.bytes = np.frombuffer(f.read(), np.uint8)
        self.context, self.key = context, make_key(seed, 0x64617461)
        held = max(len(self.bytes) // 10, context + 1)
        self.windows = (len(self.bytes) - held - context) // context

    def permute(self, i, key):
        half = 1
        while self.windows > 1 << 2 * half:
            half += 1
        mask = (1 << half) - 1
        while True:
            left, right = i >> half, i & mask
            for r in range(4):
                left, right = right, left ^ (make_key((key + r) & MASK, right) & mask)
            i = left << half | right
            if i < self.windows:
                return i

    def sample(self, k):
        key = make_key(self.key, k // self.windows)
        at = key % self.context + self.context * self.permute(k % self.windows, key)
        return self.bytes[at:at + self.context + 1]

    def batch(self, first, n):
        both = torch.from_numpy(np.stack([self.sample(first + b) for b in range(n)]).astype(np.int64))
        return both[:, :-1], both[:, 1:]


class Block(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.project = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm2, self.widen, self.narrow = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.hidden = torch.triu(torch.ones(context, context, dtype=torch.bool), 1)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(d, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            shares = (q @ k.transpose(2, 3)) * (1 / math.sqrt(d // self.heads))
            mixed = F.softmax(shares.masked_fill(self.hidden[:t, :t], float("-inf")), dim=3) @ v
        x = x + self.project(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, context, seed):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, context) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.init(layers, seed)

    def init(self, layers, seed):
        """Numbers of tensors as zerotrain counts them: two embeddings, then twelve for each block."""
        def fill(weight, tensor, deviation):
            values = deviation * draw_normal(make_key(seed, tensor), weight.numel())
            with torch.no_grad():
                weight.copy_(torch.from_numpy(values.astype(np.float32)).view(weight.shape))

        fill(self.bytes.weight, 0, 0.02)
        fill(self.places.weight, 1, 0.02)
        for i, block in enumerate(self.blocks):
            for part, linear in [(2, block.qkv), (4, block.project), (8, block.widen), (10, block.narrow)]:
                fill(linear.weight, 2 + 12 * i + part, 0.02 / (math.sqrt(2 * layers) if part in (4, 10) else 1))
                nn.init.zeros_(linear.bias)

    def forward(self, x, targets):
        h = self.bytes(x) + self.places.weight[:x.shape[1]]
        for block in self.blocks:
            h = block(h)
        logits = self.norm(h) @ self.bytes.weight.t()
        return F.cross_entropy(logits.view(-1, 256), targets.reshape(-1))


def rate_at(step, steps, lr):
    """DeepSpeed's WarmupCosineLR, of update number `step`."""
    warmup, i = max(2, steps // 20), step - 1
    if steps < 40:
        return lr
    if i < 0:
        return 0.0
    if i < warmup:
        return lr * math.log(i + 1) / math.log(warmup)
    part = min(1, (i - warmup + 1) / max(1, steps - warmup))
    return lr * (0.1 + 0.9 * (1 + math.cos(math.pi * part)) / 2)


def make_optimizer(model, lr):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)


class Torch:
    """DistributedDataParallel or fully_shard."""

    def __init__(self, way, compiled, model, lr):
        if way == "fsdp2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        self.model, self.optimizer = model, make_optimizer(model, lr)
        self.forward = nn.parallel.DistributedDataParallel(model) if way == "ddp" else model
        if compiled:
            self.forward = torch.compile(self.forward)

    def update(self, batch):
        loss = self.forward(*batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1)
        self.optimizer.step()
        return loss


class DeepSpeed:
    def __init__(self, stage, compiled, model, lr, batch):
        import deepspeed
        config = {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
                  "zero_optimization": {"stage": stage}, "steps_per_print": 1 << 30}
        self.engine, self.optimizer, _, _ = deepspeed.initialize(model=model, optimizer=make_optimizer(model, lr), config=config,
                                                                 dist_init_required=False)
        if compiled:
            self.engine.compile()

    def update(self, batch):
        loss = self.engine(*batch)
        self.engine.backward(loss)
        self.engine.step()
        return loss


def main():
    way, _, compiled = sys.argv[1].partition("+")
    if way not in ("ddp", "fsdp2", "deepspeed1", "deepspeed2", "deepspeed3") or compiled not in ("", "compile"):
        sys.exit(f"train_torch.py: {sys.argv[1]} is no way of training: see its beginning")
    rank, nranks, port = map(int, sys.argv[2:5])
    path, (steps, batch, layers, dim, heads, context), lr, seed = sys.argv[5], map(int, sys.argv[6:12]), float(sys.argv[12]), int(sys.argv[13])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(nranks), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=nranks)
    model = Gpt(layers, dim, heads, context, seed)
    if way.startswith("deepspeed"):
        trainer = DeepSpeed(int(way[-1]), bool(compiled), model, lr, batch)
    else:
        trainer = Torch(way, bool(compiled), model, lr)
    data, before = Data(path, context, seed), time.monotonic()
    for step in range(steps):
        for group in trainer.optimizer.param_groups:
            group["lr"] = rate_at(step, steps, lr)
        loss = trainer.update(data.batch((step * nranks + rank) * batch, batch))
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            now = time.monotonic()
            print(f"step {step + 1} loss {mean.item() / nranks:.9f} tokens/s {batch * nranks * context / (now - before):.0f}", flush=True)
            before = now
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of fully_shard may end the interpreter with an abort


main()
