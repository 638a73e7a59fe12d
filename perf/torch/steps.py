"""A training step of a model of 10 M and of 100 M parameters with DDP and FSDP2, on Kolo and on gloo in turns.

    python perf/torch/steps.py [--ranks 2] [--rounds 15] [--models 10,100]

Each rank has a core. Of each round it takes the slowest rank's time, and prints medians in ms and the ratios of the rounds. `alone` is
the same step without other ranks, all cores at work."""
import argparse
import statistics
import time

import beside  # before torch: it sets how many threads that has

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import kolo_torch  # noqa: F401

SIZES = {10: (6, 384), 100: (14, 768)}  # millions of parameters: layers, width


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.view(*t.shape[:2], 8, -1).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def model(millions):
    layers, width = SIZES[millions]
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _ in range(layers))), width


def stepper(kind, millions, group):
    net, width = model(millions)
    if kind == "DDP":
        net = nn.parallel.DistributedDataParallel(net, process_group=group)
    elif kind == "FSDP2":
        mesh = DeviceMesh.from_group(group, "cpu")
        for block in net:
            fully_shard(block, mesh=mesh)
        net = fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    x = torch.randn(1, 64, width)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return step


def measure(rank, ranks, args, file):
    beside.bind(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    groups = {"kolo": dist.new_group(backend="kolo"), "gloo": dist.new_group(backend="gloo")}
    for millions in args.models:
        for kind in ("DDP", "FSDP2"):
            steps = {name: stepper(kind, millions, group) for name, group in groups.items()}
            steps["alone"] = stepper("", millions, None)
            found = []
            for _ in range(args.rounds + 2):
                times = []
                for step in steps.values():
                    dist.barrier()
                    begin = time.perf_counter()
                    step()
                    times.append((time.perf_counter() - begin) * 1e3)
                slowest = torch.tensor(times)
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                found.append(slowest.tolist())
            if rank == 0:
                found = found[2:]
                kolo, gloo, alone = (statistics.median(x[k] for x in found) for k in range(3))
                print(f"{ranks:5} {millions:6} M {kind:6} {kolo:9.1f} {gloo:9.1f} {alone:9.1f} {beside.ratios(found)}", flush=True)
            del steps
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=beside.numbers, default=[2])
    parser.add_argument("--models", type=beside.numbers, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"# torch {torch.__version__}; ms of a step; ratio: gloo's time by Kolo's")
    print(f"{'ranks':>5} {'model':>8} {'':6} {'kolo':>9} {'gloo':>9} {'alone':>9} {'ratio':>8}   95 % of its mean", flush=True)
    beside.run(measure, args)


if __name__ == "__main__":
    main()
