"""Gradients of layers in one of two processes, against those of the whole batch: run by torch.distributed.run."""

import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import derivable as dv

SAMPLES = 8


class Reader(torch.nn.Module):
    """Probabilities of edges from features, and of pairs that a layer derives from them."""

    def __init__(self, provenance):
        super().__init__()
        self.reader = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 6)).double()
        edges = [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (3, 0)]
        self.logic = dv.nn.Logic(
            "type edge(x: usize, y: usize) rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z)",
            inputs={"edge": dv.independent(edges)},
            outputs={"path": [(0, y) for y in range(4)]},
            provenance=provenance,
        )

    def forward(self, features):
        return self.logic(self.reader(features).sigmoid())


def gradients(model, features, targets):
    torch.nn.functional.mse_loss(model(features), targets).backward()
    return torch.cat([getattr(p.grad, "full_tensor", lambda p=p: p.grad)().flatten() for p in model.parameters()])


def flat(model, features, targets):
    """The gradients of parameters that are one after the other in each process's share, from the sum of these."""
    sharded = FullyShardedDataParallel(model, use_orig_params=False, device_id=torch.device("cpu"))
    torch.nn.functional.mse_loss(sharded(features), targets).backward()
    [parameter] = sharded.parameters()
    parts = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, parameter.grad)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, count = dist.get_rank(), dist.get_world_size()
    features, targets = torch.randn(SAMPLES, 5).double(), torch.rand(SAMPLES, 4).double()
    shard = features[rank::count], targets[rank::count]
    for provenance in ("exact", "topkproofs", "addmultprob", "minmaxprob"):
        model = Reader(provenance)
        expected = gradients(copy.deepcopy(model), features, targets)
        assert expected.abs().max() > 1e-3
        mesh = init_device_mesh("cpu", (count,))
        found = {
            "ddp": gradients(DistributedDataParallel(copy.deepcopy(model)), *shard),
            "fully_shard": gradients(fully_shard(copy.deepcopy(model), mesh=mesh), *shard),
            "fsdp": flat(copy.deepcopy(model), *shard),
        }
        for name, of in found.items():
            # Shares of parameters are filled up to equal lengths.
            error = (of[: len(expected)] - expected).abs().max()
            dist.all_reduce(error, dist.ReduceOp.MAX)
            if rank == 0:
                print(provenance, name, error.item())
    # Nobody leaves while others are connected to it.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
