"""The stopwatch: the time of a call, and what it is spent on."""

import os
import re
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.profiler_util import EventList

from caracal_min.precision import autocast, resolve_precision

__all__ = ["Differentiated", "in_precision", "in_turns", "kind_of", "mean_time", "medians", "time_by_kind", "traced"]

CONVOLUTION = "convolution"
# What a kernel of a GPU, or an operator on a CPU, is named after; the first kind that fits counts.
_KINDS = {
    CONVOLUTION: r"toeplitz",
    "FFT": r"fft",
    "attention": r"flex_attention|flash|fmha|scaled_dot_product|softmax_warp",
    "optimiser": r"adam",
    "matrix products": r"gemm|gemv|cutlass|nvjet|xmma|cublas|_mm_|^aten::(mm|addmm|bmm|baddbmm|linear|matmul)$|"
                       r"mkldnn(?!_conv)",
    "short convolution": r"^(?!.*caracal).*conv(?!ert)",
}
_REST = "the rest"
_LEAST = 20.0  # milliseconds between two events on a GPU, beside which the launch of the first call is nothing


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
    """Return the median milliseconds of each call: all are measured in turns, after two rounds of warm-up.

    On a GPU one measurement is of as many calls as take some 20 milliseconds.  With a wait after each call, an
    operator of a millisecond would be charged with the Python code that launches it, which otherwise runs while the
    GPU is still at the call before.
    """
    for _ in range(2):
        warm = [mean_time(side, 1) for side in sides]
    least = _LEAST if torch.cuda.is_available() else 0.0
    calls = [max(1, round(least / once)) for once in warm]
    return medians([[mean_time(*pair) for pair in zip(sides, calls, strict=True)] for _ in range(repeats)])


def mean_time(call: Callable, calls: int) -> float:
    """Return the mean milliseconds of `calls` calls; on a GPU between two events in its queue."""
    if not torch.cuda.is_available():
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - started) / calls * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def in_precision(f: Callable, device: str, precision: str = "auto") -> Callable:
    """Return f with its matrix products in a precision of `precision.resolve_precision`, as training calls it."""
    dtype = resolve_precision(precision, device)

    def cast(*inputs):
        with autocast(device, dtype):
            return f(*inputs)

    return cast


def traced(call: Callable) -> EventList:
    """Return PyTorch's events of a call, the second one."""
    # Its "USDT: profiler_start" and the like have level 5; the level is read at the first profile of a process.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    call()
    _wait()
    with torch.profiler.profile() as trace:  # of the CPU, and of a GPU where there is one
        call()
        _wait()
    return trace.key_averages()


def time_by_kind(events: EventList) -> dict[str, float]:
    """Return the milliseconds of a call by kind of work, told by the names of kernels (GPU) or operators (CPU).

    Kinds: convolution, attention, optimiser, matrix products, short convolution, FFT (elsewhere than in our operator),
    the rest.  On a GPU waiting between kernels is in none of them.

    Args:
        events: as `traced` returns them; those of a GPU count alone, if there are any.
    """
    of_gpu = torch.autograd.DeviceType.CUDA
    on_gpu = any(event.device_type == of_gpu for event in events)
    times = dict.fromkeys((*_KINDS, _REST), 0.0)
    operator = 0.0
    for event in events:
        # The operator pads, casts, copies and scales beside its transforms: all that it launches is its own time.
        if re.match(r"caracal::causal_conv", event.key):
            operator += (event.device_time_total if on_gpu else event.cpu_time_total) / 1e3
        if event.is_user_annotation or on_gpu != (event.device_type == of_gpu):
            continue
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        times[kind_of(event.key)] += own / 1e3
    # So far the steps of the operator are counted twice: as what they are, transforms first, and as the operator.
    transforms = min(times["FFT"], operator)
    times["FFT"] -= transforms
    times[_REST] -= operator - transforms
    times[CONVOLUTION] += operator
    return times


def kind_of(name: str) -> str:
    """Return the kind of work of a kernel (GPU) or an operator (CPU), told by its name."""
    if re.match(r"triton_(?!tem_)", name):  # fused elementwise work and sums, named after whatever stands beside them
        return _REST
    return next((kind for kind, names in _KINDS.items() if re.search(names, name, re.I)), _REST)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
