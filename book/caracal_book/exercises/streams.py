"""A stream that knows which of its contents and gates still live, for checkers that ask for a state of fixed size."""

import gc
import weakref
from types import CodeType, FunctionType, ModuleType

import numpy as np
from torch import Tensor

__all__ = ["Stream", "numbers_kept"]


class Stream:
    """Yield v_t and g_t as tensors of their own, and know how many were drawn and which of them still live."""

    def __init__(self, v: Tensor, g: Tensor) -> None:
        self._v, self._g, self.drawn = v, g, 0
        self._living: dict[str, list[weakref.ref]] = {"v": [], "g": []}

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self.drawn == len(self._v):
            raise StopIteration
        pair = self._v[self.drawn].clone(), self._g[self.drawn].clone()
        for name, x in zip("vg", pair, strict=True):
            self._living[name].append(weakref.ref(x))
        self.drawn += 1
        return pair

    def expect_dropped(self, case: str, K: int) -> None:
        """Raise AssertionError if a content before the last K lives, or a gate after the first K.

        One content more may live, because an answer may make room only when the next comes, and the two newest gates,
        because variables still hold them.
        """
        past = {"v": range(self.drawn - K - 1), "g": range(K, self.drawn - 2)}
        for again in (False, True):
            kept = [f"{name}_{i}" for name, indices in past.items() for i in indices
                    if self._living[name][i]() is not None]
            if not kept:
                return
            if not again:
                gc.collect()
        raise AssertionError(f"{case}: after token {self.drawn - 1} expected only the last {K} of v and the first {K} "
                             f"of g to stay, given {kept[0]} and {len(kept) - 1} more besides")


def numbers_kept(state: object) -> int:
    """Count the numbers that a generator holds: in tensors, with all of their storage, in arrays and as floats."""
    seen: dict[object, object] = {}
    found, todo = 0, [state]
    while todo:
        x = todo.pop()
        if id(x) in seen or isinstance(x, type | ModuleType | CodeType | Stream):
            continue
        seen[id(x)] = x
        if isinstance(x, Tensor):
            storage = x.untyped_storage()
            place = "storage", storage.data_ptr()
            found += 0 if place in seen else storage.nbytes() // 8
            seen[place] = x
        elif isinstance(x, np.ndarray):
            found += x.nbytes // 8
        elif isinstance(x, float):
            found += 1
        elif isinstance(x, FunctionType):  # its globals are not its state
            todo += [x.__closure__, x.__defaults__]
        elif not (isinstance(x, dict) and "__builtins__" in x):
            todo += gc.get_referents(x)
    return found
