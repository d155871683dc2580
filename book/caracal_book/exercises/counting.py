"""What an answer computes and keeps, for the checkers that ask for a cost."""

import math
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from . import Wrong, ensure

__all__ = ["PRODUCTS", "Watch", "numbers_kept"]

# Ways out of torch, beyond which no work can be seen.
_TAKES_OUT = ("numpy", "__array__", "__dlpack__", "tolist", "item", "__float__", "__int__", "__complex__", "data_ptr")

# How the names of functions begin that multiply matrices.
PRODUCTS = ("matmul", "mm", "bmm", "mv", "addmm", "einsum", "tensordot", "__matmul__", "__rmatmul__", "inner", "vdot",
            "dot", "linear", "baddbmm", "addbmm", "chain_matmul", "multi_dot")


class _Call(NamedTuple):
    name: str
    given: list[torch.Size]
    made: list[torch.Size]


class Watch(TorchFunctionMode):
    """Note the calls of torch's functions inside the `with` block: name, shapes of the tensors given and made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given, made = ([x.shape for x in tree_leaves(each) if isinstance(x, Tensor)] for each in (args, result))
        self.calls.append(_Call(getattr(func, "__name__", ""), given, made))
        return result

    @property
    def numbers(self) -> int:
        """How many numbers all functions returned together."""
        return sum(math.prod(shape) for call in self.calls for shape in call.made)

    @property
    def transforms(self) -> list[_Call]:
        """The calls of Fourier transforms."""
        return [call for call in self.calls if call.name.startswith("fft_")]

    def forbid(self, case: str, names: tuple[str, ...], reason: str) -> None:
        """Raise `Wrong` if a function was called whose name begins with one of the names."""
        for call in self.calls:
            if call.name.startswith(names):
                raise Wrong(f"{case}: {call.name} was called; {reason}")

    def require_torch(self, case: str) -> None:
        """Raise `Wrong` if numbers were taken out of torch: an array of NumPy, a list, a number of Python."""
        self.forbid(case, _TAKES_OUT, "use operations of torch alone, since the checker cannot count others")

    def require_points(self, case: str, most: int) -> None:
        """Raise `Wrong` unless there was a transform and none had more points; the package's pad."""
        ensure(self.transforms, f"{case}: the numbers are right; expected a transform of torch.fft, given none")
        largest = max(shape[-1] for call in self.transforms for shape in (call.given[0], call.made[0]))
        ensure(largest <= most, f"{case}: the numbers are right; expected transforms of at most {most} points, given "
                                "a longer one, and padding is not needed")


def numbers_kept(state: Any) -> int:
    """Count the numbers in the tensors and the floats of a state, in whatever it holds them."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, dict | list | tuple | set | deque):
        return sum(map(numbers_kept, state.values() if isinstance(state, dict) else state))
    return isinstance(state, float) or sum(map(numbers_kept, getattr(state, "__dict__", {}).values()))
