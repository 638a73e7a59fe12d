"""Two steps of everything that trains on process groups, on Kolo and on gloo: the losses are the same bits on 2 ranks, and close on 4.

T_DEVICE=cuda: on GPUs made of threads, and gloo on the CPU. On a real GPU, whose kernels round otherwise, they are close.
T_BACKEND=nccl: on libnccl of Kolo."""
import os
import tempfile

import ranks
from ranks import BACKEND, dist, join, main, run, there, torch

import torch.nn as nn

CASES = []


def case(function):
    CASES.append(function)
    return function


def model(seed=0, width=64):
    torch.manual_seed(seed)
    return there(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width), nn.Linear(width, width)))


def batch(rank, step, width=64):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return there(torch.randn(8, width, generator=g)), there(torch.randn(8, width, generator=g))


def two_steps(net, optimizer, rank, steps=2):
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().double())
    return losses


def both(train, n, tolerance):
    """Runs train(rank, n, place) on both backends, and compares what it returns. tolerance 0: the same bits."""
    def one(rank, n, place, backend, results):
        join("cpu:gloo,cuda:nccl" if backend == "nccl" else backend, rank, n, place, kernels=True)
        found = torch.stack([torch.as_tensor(x).double().sum() for x in train(rank, n, place)]).cpu()
        torch.save(found, f"{results}/{backend}-{rank}")
        dist.destroy_process_group()

    with tempfile.TemporaryDirectory(prefix="kolo-torch-") as results:
        for backend in ("gloo", BACKEND):
            run(n, one, backend, results)
        for rank in range(n):
            gloo, kolo = (torch.load(f"{results}/{backend}-{rank}") for backend in ("gloo", BACKEND))
            tolerance = max(tolerance, 1e-3) if ranks.REAL_GPU else tolerance
            same = torch.allclose(gloo, kolo, rtol=tolerance, atol=tolerance / 10)
            assert same and torch.isfinite(kolo).all(), (train.__qualname__, n, rank, gloo, kolo)


def everywhere(train, tolerance=1e-6):
    both(train, 2, 0)
    both(train, 4, tolerance)


@case
def ddp():
    def train(rank, n, place):
        net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.02)
        return two_steps(net, torch.optim.AdamW(net.parameters(), 1e-2), rank)
    everywhere(train)


@case
def ddp_with_hooks_and_unused_parameters():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = model(), model(1)

        def forward(self, x):
            return self.used(x)

    def train(rank, n, place):
        net = nn.parallel.DistributedDataParallel(Half(), find_unused_parameters=True)
        net.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return two_steps(net, torch.optim.SGD(net.parameters(), 1e-1), rank)
    everywhere(train, 1e-3)  # bf16, added in another order


def _mesh(shape, names):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(ranks.DEVICE, shape, mesh_dim_names=names)


def _fully_sharded(mesh):
    from torch.distributed.fsdp import fully_shard

    net = model()
    for layer in (net[0], net[2], net[4]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


@case
def fsdp2():
    def train(rank, n, place):
        net = _fully_sharded(_mesh((n,), ("dp",)))
        return two_steps(net, torch.optim.AdamW(net.parameters(), 1e-2), rank)
    everywhere(train)


@case
def hsdp():
    def train(rank, n, place):
        net = _fully_sharded(_mesh((2, 2), ("replicate", "shard")))
        return two_steps(net, torch.optim.AdamW(net.parameters(), 1e-2), rank)
    both(train, 4, 1e-6)


@case
def tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def train(rank, n, place):
        net = parallelize_module(model(), _mesh((n,), ("tp",)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return two_steps(net, torch.optim.AdamW(net.parameters(), 1e-2, foreach=False), 0)
    everywhere(train)


@case
def tensor_and_data_parallel():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def train(rank, n, place):
        mesh = _mesh((2, 2), ("dp", "tp"))
        net = parallelize_module(model(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(net, mesh=mesh["dp"])
        return two_steps(net, torch.optim.AdamW(net.parameters(), 1e-2, foreach=False), rank // 2)
    both(train, 4, 1e-6)


@case
def pipelines():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    def train(rank, n, place):
        losses = []
        for schedule in (ScheduleGPipe, Schedule1F1B):
            torch.manual_seed(rank)
            part = there(nn.Sequential(nn.Linear(64, 64), nn.GELU()))
            stage = PipelineStage(part, rank, n, there(torch.empty(0)).device)
            plan, optimizer = schedule(stage, 4, loss_fn=nn.functional.mse_loss), torch.optim.SGD(part.parameters(), 0.1)
            for step in range(2):
                x, y = batch(0, step)
                got = []
                optimizer.zero_grad()
                if rank == 0:
                    plan.step(x)
                elif rank == n - 1:
                    plan.step(target=y, losses=got)
                else:
                    plan.step()
                optimizer.step()
                losses.append(torch.stack(got).mean().detach() if got else next(part.parameters()).detach().abs().sum())
        return losses
    everywhere(train)


@case
def checkpoints():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def train(rank, n, place):
        net = _fully_sharded(_mesh((n,), ("dp",)))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        losses = two_steps(net, optimizer, rank)
        state = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer)))
        dcp.save(state, checkpoint_id=f"{place}/checkpoint")
        dcp.async_save(state, checkpoint_id=f"{place}/later").result()
        again = two_steps(net, optimizer, rank)
        for name in ("checkpoint", "later"):
            dcp.load(state, checkpoint_id=f"{place}/{name}")
            set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            loaded = two_steps(net, optimizer, rank)
            assert torch.equal(torch.stack(loaded), torch.stack(again)), (name, loaded, again)
            losses += loaded
        return losses
    everywhere(train)


@case
def zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def train(rank, n, place):
        net = nn.parallel.DistributedDataParallel(model())
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
        losses = two_steps(net, optimizer, rank)
        optimizer.consolidate_state_dict(0)
        return losses
    everywhere(train)


@case
def deepspeed():
    import deepspeed as ds

    def train(rank, n, place):
        losses = []
        os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(n), LOCAL_SIZE=str(n), DS_ACCELERATOR="cpu")
        for stage in (1, 2, 3):
            config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": stage}, "zero_force_ds_cpu_optimizer": False}
            net = model()
            engine, optimizer, _, _ = ds.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), 1e-2), config=config)
            for step in range(2):
                x, y = batch(rank, step)
                loss = nn.functional.mse_loss(engine(x), y)
                engine.backward(loss)
                engine.step()
                losses.append(loss.detach())
        return losses
    everywhere(train)


if __name__ == "__main__":
    main(CASES)
