"""What an answer computes, for the checkers that ask for a cost: torch's functions are watched while it runs."""

from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["PRODUCTS", "CountWork"]

# Ways out of torch, beyond which no work can be seen.
_TAKES_OUT = {"numpy", "__array__", "__dlpack__", "tolist", "item", "__float__", "__int__", "__complex__", "data_ptr",
              "untyped_storage"}

# Names of the functions that multiply matrices.
PRODUCTS = {"matmul", "mm", "bmm", "mv", "addmm", "einsum", "tensordot", "__matmul__", "__rmatmul__", "inner", "vdot",
            "dot", "linear", "baddbmm", "addbmm", "chain_matmul", "multi_dot"}


class CountWork(TorchFunctionMode):
    """Count the numbers in all tensors that torch's functions return inside the `with` block.

    `numbers` is the count, `names` are the functions called, `left` is the first one that took numbers out of torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.names, self.left = 0, set(), ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.names.add(name)
        if name in _TAKES_OUT:
            self.left = self.left or name
        for part in result if isinstance(result, tuple | list) else (result,):
            self.numbers += part.numel() if isinstance(part, Tensor) else 0
        return result

    def expect_within_torch(self, case: str) -> None:
        """Raise AssertionError if numbers were taken out of torch: an array of NumPy, a list, a number of Python."""
        if self.left:
            raise AssertionError(f"{case}: {self.left} was called, expected operations of torch alone, "
                                 "since the checker cannot count others")
