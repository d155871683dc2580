"""Several processes that train one model, started by `torchrun`; one process is a group of one.

Every process holds the whole model and takes its rows of each batch; gradients are averaged (data parallelism).

A process that ends takes the others with it: `torchrun` stops them.  For one that hangs in a step, gloo and NCCL wait
for `timeout` minutes.  While the main process reads the corpus the others wait as long as that takes.
"""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from ..language_model import LanguageModel
from ..precision import find_device

__all__ = ["Group", "LostProcessError"]

T = TypeVar("T")
_groups, _turns = itertools.count(), itertools.count()
_LOST = re.compile(r"timed? ?out|connection|broken pipe|socket|gloo|nccl", re.IGNORECASE)


class LostProcessError(RuntimeError):
    """Another process of the group does not answer, or has ended."""


class Group:
    """The processes of this run, as `torchrun` describes them in the environment.

    Args:
        device: auto (a GPU if there is one; process i of a machine takes GPU i), cpu, cuda, ...
        timeout: minutes to wait for a process that does not answer.  With NCCL, PyTorch itself ends the waiting
            process then; with gloo it raises `LostProcessError`.

    Attributes:
        rank: number of this process, 0 to world_size - 1.
        world_size: processes in the group.
        device: where this process computes.

    Raises:
        ValueError: no such device.
        LostProcessError: not all processes have come within `timeout`.
    """

    def __init__(self, device: str = "auto", timeout: float = 10.0):
        self.timeout = timeout
        self.rank, self.world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if device == "auto" and torch.cuda.is_available():
            device = "cuda"
        if device == "cuda" and self.world_size > 1:
            device = f"cuda:{os.environ['LOCAL_RANK']}"
        self.device = find_device(device)
        if self.world_size > 1:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            with self.waiting():
                self._join()

    def _join(self) -> None:
        timeout = timedelta(minutes=self.timeout)
        self._store = dist.PrefixStore(f"group {next(_groups)}", _common_store(timeout))
        if not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.world_size,
                                    timeout=timeout)

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and shows the bar."""
        return self.rank == 0

    def loss_of(self, model: LanguageModel) -> nn.Module:
        """Return `model.loss` as a module; its gradients are averaged over the group after each backward pass."""
        if self.world_size == 1:
            return _Loss(model)
        devices = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(_Loss(model), device_ids=devices, gradient_as_bucket_view=True)

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

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        gathered = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(gathered, value)
        return gathered

    def main_first(self, work: Callable[[], T]) -> T:
        """Do some work in the main process, then in the others, and return its result when all have done it."""
        if self.world_size == 1:
            return work()
        done = [f"work {next(_turns)} done by {rank}" for rank in range(self.world_size)]
        if not self.is_main:
            self._await(done[:1])
        result = work()
        self._store.set(done[self.rank], "")
        self._await(done)
        return result

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Turn what PyTorch reports of a process that does not answer into a `LostProcessError` of one line."""
        try:
            yield
        except RuntimeError as error:
            if self.world_size == 1 or not _LOST.search(str(error)):
                raise
            raise LostProcessError(f"another process does not answer, after waiting for up to {self.timeout:g} minutes "
                                   f"({' '.join(str(error).split())[:120]}); start the same command again, and the run "
                                   "goes on from its last checkpoint") from error

    def close(self) -> None:
        """Leave the group."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def _await(self, keys: list[str]) -> None:
        """Return when all keys are in the store; meanwhile signals are answered."""
        with self.waiting():
            while not self._store.check(keys):
                time.sleep(0.05)


class _Loss(nn.Module):
    """The loss as a module, for what wraps modules: DistributedDataParallel."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(tokens, targets)


@cache
def _common_store(timeout: timedelta) -> dist.Store:
    """Return the store of the processes that `torchrun` started together."""
    return next(rendezvous("env://", timeout=timeout))[0]
