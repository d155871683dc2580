"""Several processes that train one model (data parallelism), started by `torchrun`.

Every process holds the whole model and takes its rows of each batch; gradients are averaged.
One process is a group of one.
"""

import ctypes
from collections.abc import Callable
from datetime import timedelta
from os import environ
from platform import libc_ver
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..precision import find_device

__all__ = ["Group", "keep_freed_memory"]


class Group:
    """The processes of this run, as `torchrun` describes them in the environment.

    Args:
        device: auto (a GPU if there is one; process i of a machine takes GPU i), cpu, cuda, ...
        timeout: minutes that gloo or NCCL wait for a process in a step.

    Attributes:
        rank: number of this process, 0 to world_size - 1.
        world_size: processes in the group.
        device: where this process computes.
    """

    def __init__(self, device: str = "auto", timeout: float = 10.0):
        # Without torchrun these variables are unset, and the process is alone.
        self.rank = int(environ.get("RANK", 0))
        self.world_size = int(environ.get("WORLD_SIZE", 1))
        # LOCAL_RANK counts the processes of one machine, so each of them gets a GPU to itself.
        if self.world_size > 1 and device in ("auto", "cuda") and torch.cuda.is_available():
            device = f"cuda:{environ['LOCAL_RANK']}"
        self.device = find_device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        if self.world_size > 1:
            backend = "gloo"
            # NCCL sends from the current GPU, which otherwise is number 0 in every process.
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
                backend = "nccl"
            dist.init_process_group(backend, timeout=timedelta(minutes=timeout))

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and shows the bar."""
        return self.rank == 0

    def loss_of(self, model: nn.Module) -> nn.Module:
        """Return `model.loss` as a module whose backward pass averages gradients over the group."""
        loss = _Loss(model)
        # One process has nothing to average, so it saves itself DDP's buckets and hooks.
        if self.world_size == 1:
            return loss
        devices = None
        if self.device.type == "cuda":
            devices = [self.device]
        # As views of the buckets that are sent, gradients take no memory of their own.
        return nn.parallel.DistributedDataParallel(loss, device_ids=devices,
                                                   gradient_as_bucket_view=True)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of a tensor over the group; nothing waits for a GPU."""
        if self.world_size > 1:
            dist.all_reduce(values)
            values = values / self.world_size
        return values

    def main_first(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; the main process does it first, the others find its files."""
        if self.world_size == 1:
            return work()
        # The main process may read FineWeb for hours, so this barrier outlasts `timeout`.
        patient = dist.new_group(backend="gloo", timeout=timedelta(days=7))
        if not self.is_main:
            dist.barrier(patient)
        result = work()
        if self.is_main:
            dist.barrier(patient)
        return result

    def close(self) -> None:
        """Leave the group."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees; return whether the C library can be told so.

    By default glibc gives large freed tensors back to the system and takes fresh pages, which it
    has to clear, for the next ones: 4 % of a CPU's training step.

    Source: mallopt(3).
    """
    if libc_ver()[0] != "glibc":
        return False
    # ctypes does not read malloc.h, so its constants M_TRIM_THRESHOLD and M_MMAP_MAX stand here.
    trim_threshold = -1
    mmap_max = -4
    mallopt = ctypes.CDLL(None).mallopt
    # Blocks from mmap go back to the system at once, so none may come from there.
    return bool(mallopt(mmap_max, 0) and mallopt(trim_threshold, -1))


class _Loss(nn.Module):
    """The loss as a forward pass, since DistributedDataParallel hooks into that alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(tokens, targets)
