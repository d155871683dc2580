"""Time and memory of a call, for `benchmark`.

Read next: `benchmark`.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Differentiated", "in_turns", "kept_for_backward", "mean_time", "medians", "peak_memory"]


class Differentiated:
    """A function run forward and backward by a call: the gradients of the sum of weight times its result.

    Args:
        f: what is run.
        inputs: its arguments; copies of them are differentiated.
        weight: shaped as the result of f.
        parameters: what else to differentiate.
    """

    def __init__(self, f: Callable, inputs: Sequence[Tensor], weight: Tensor, parameters: Sequence[Tensor] = ()):
        self.f, self.weight = f, weight
        self.inputs = [x.detach().requires_grad_() for x in inputs]
        self.sought = [*self.inputs, *parameters]

    def forward(self) -> Tensor:
        """Run forward only."""
        return self.f(*self.inputs)

    def __call__(self) -> tuple[Tensor, ...]:
        """Run forward and backward."""
        return torch.autograd.grad(self.forward(), self.sought, self.weight)


def in_turns(sides: Sequence[Callable], repeats: int) -> list[float]:
    """Return the median milliseconds of each call: all are measured in turns, after two rounds of warm-up."""
    return medians([[mean_time(side, 1) for side in sides] for _ in range(repeats + 2)][2:])


def mean_time(call: Callable, calls: int) -> float:
    """Return the mean milliseconds of `calls` calls, the work on a GPU included."""
    _wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    _wait()
    return (time.perf_counter() - start) / calls * 1e3


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def kept_for_backward(side: Differentiated) -> float:
    """Return the MiB that are held between forward and backward, inputs, parameters and the result left out."""
    held, result = _allocated(side.forward)
    return (held[-1] - result.untyped_storage().nbytes()) / 2**20


def peak_memory(call: Callable) -> float:
    """Return the MiB that a call holds at its peak, above what is held before it."""
    return max(_allocated(call)[0]) / 2**20


def _allocated(call: Callable) -> tuple[list[int], object]:
    """Return the bytes held in the course of a call, above those before it, the last entry at its end; its result."""
    if torch.cuda.is_available() and torch.cuda.memory_allocated():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        return [torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before], result
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as trace:
        result = call()
    sizes = (e.nbytes() for e in trace.profiler.kineto_results.events() if e.name() == "[memory]")
    return list(itertools.accumulate(sizes, initial=0)), result


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
