"""Several processes that train one model, started by `torchrun`; one process is a group of one.

Every process holds the whole model and takes its part of each batch; gradients are averaged (data parallelism).

A process that is frozen must not hold up the others for ever, and one that works for an hour must not be taken for
frozen.  So each counts a number up in the store that they share, its pulse.  Where one does work of its own, as reading
the corpus, the others wait while its pulse goes on.  Within a step they wait for `timeout` minutes.
"""

import itertools
import os
import re
import threading
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
        self.rank, self.world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if device == "auto" and torch.cuda.is_available():
            device = "cuda"
        if device == "cuda" and self.world_size > 1:
            device = f"cuda:{os.environ['LOCAL_RANK']}"
        self.device = find_device(device)
        self._seconds, self._ended = 60 * timeout, threading.Event()
        if self.world_size > 1:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            with self.waiting():
                self._join()

    def _join(self) -> None:
        timeout = timedelta(seconds=self._seconds)
        self._store = dist.PrefixStore(f"group {next(_groups)}", _common_store(timeout))
        if not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.world_size,
                                    timeout=timeout)
        self._between = min(5.0, self._seconds / 10)
        threading.Thread(target=self._beat, daemon=True).start()

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
        """Do some work in the main process, then in the others, and return its result when all have done it.

        It may take as long as it likes: only a process whose pulse has stopped for `timeout` is given up.
        """
        if self.world_size == 1:
            return work()
        done = f"done {next(_turns)}"
        if not self.is_main:
            self._await(done, 0)
        result = work()
        self._store.set(f"{done} {self.rank}", "")
        for rank in range(self.world_size):
            self._await(done, rank)
        return result

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Turn what PyTorch reports of a process that does not answer into a `LostProcessError` of one line."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, LostProcessError) or self.world_size == 1 or not _LOST.search(str(error)):
                raise
            raise LostProcessError(f"{self._silent()} ({' '.join(str(error).split())[:120]}); start the same command "
                                   "again, and the run goes on from its last checkpoint") from error

    def close(self) -> None:
        """Leave the group."""
        self._ended.set()
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def _beat(self) -> None:
        while not self._ended.wait(self._between):
            try:
                self._store.add(f"pulse {self.rank}", 1)
            except RuntimeError:  # the store has ended with the run
                return

    def _await(self, done: str, rank: int) -> None:
        """Return when a process has done its work, or give it up when its pulse stops."""
        seen, since = -1, time.monotonic()
        with self.waiting():
            while not self._store.check([f"{done} {rank}"]):
                pulse = self._store.add(f"pulse {rank}", 0)
                if pulse != seen:
                    seen, since = pulse, time.monotonic()
                elif time.monotonic() - since > self._seconds:
                    raise LostProcessError(f"process {rank} of {self.world_size} has shown no sign of life for "
                                           f"{self._seconds / 60:g} minutes; start the same command again")
                time.sleep(0.05)

    def _silent(self) -> str:
        """Say which processes show no sign of life, as far as the store answers."""
        still: list[str] = []

        def look() -> None:
            ranks = [rank for rank in range(self.world_size) if rank != self.rank]
            try:
                before = [self._store.add(f"pulse {rank}", 0) for rank in ranks]
                time.sleep(3 * self._between)
                still.extend(str(rank) for rank, pulse in zip(ranks, before, strict=True)
                             if self._store.add(f"pulse {rank}", 0) == pulse)
            except (RuntimeError, AttributeError):  # there is no store: it has ended, or was not found
                return

        asking = threading.Thread(target=look, daemon=True)  # the store itself may be frozen
        asking.start()
        asking.join(3 * self._between + 10)
        who = f"process {', '.join(still)} of {self.world_size}" if still else "another process"
        return f"{who} does not answer, after waiting for up to {self._seconds / 60:g} minutes"


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
