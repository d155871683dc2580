"""Several processes that train one model, started by `torchrun`; one process is a group of one.

Every process holds the whole model and takes its part of each batch; gradients are averaged (data parallelism).
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

__all__ = ["Group"]


class Group:
    """The processes of this run, as `torchrun` describes them in the environment.

    Args:
        device: auto (a GPU if there is one; process i of a machine takes GPU i), cpu, cuda, ...

    Attributes:
        rank: number of this process, 0 to world_size - 1.
        world_size: processes in the group.
        device: where this process computes.
    """

    def __init__(self, device: str = "auto"):
        self.rank, self.world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and self.world_size > 1:
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
        self.device = torch.device(device)
        if self.world_size > 1 and not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(days=1))  # others wait while one tokenizes

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and shows the bar."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with gradients averaged over the group at the end of each backward pass."""
        if self.world_size == 1:
            return model
        devices = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean of a tensor over the group."""
        if self.world_size > 1:
            dist.all_reduce(value)
            value = value / self.world_size
        return value

    def max(self, *values: float) -> list[float]:
        """Return the largest of each value over the group, so that all processes decide alike."""
        if self.world_size == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return shared.tolist()

    def barrier(self) -> None:
        """Return when every process has come here."""
        if self.world_size > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
