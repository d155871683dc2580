"""The figure of chapter 2: N points on the unit circle, their squares, and a polynomial's values there."""

import math
from collections.abc import Sequence

from .figure import Figure

__all__ = ["roots"]

_LARGEST = 16


def roots(n: int, coefficients: Sequence[float] = (1.0, 2.0, 1.5, -1.0)) -> Figure:
    """Show n points e^{-2 pi i m / n}, m < n, their squares, and the values of a polynomial at them.

    The points solve z^n = 1, and turned by an angle z^n = e^{i n angle}: -1 for pi / n, i for pi / (2 n).
    For the chosen point z the figure builds P(z) = even(z^2) + z odd(z^2), from the even and the odd coefficients,
    and, where -z is a point too (n even), P(-z) from the same two numbers.  The reader slides n from 2 to 16,
    chooses a point, and turns all points by dragging one or by a slider, up to their next neighbours.

    Args:
        n: number of points, 2 to 16.
        coefficients: of the polynomial, lowest power first, real, 1 to 8 of them.

    Raises:
        ValueError: n out of range; no coefficients, more than 8, or one that is not finite.

    Source: the points of Caracal, Appendix C (b); z^N = -1 and z^N = i are not in the paper.
    """
    if not 2 <= n <= _LARGEST:
        raise ValueError(f"n={n} points; give 2 to {_LARGEST}")
    numbers = [float(c) for c in coefficients]
    if not 1 <= len(numbers) <= 8 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"coefficients are {numbers}; give 1 to 8 finite numbers")
    model = {"n": n, "coefficients": numbers, "degrees": 0.0, "point": 1, "largest": _LARGEST}
    return Figure("roots", model, None, _alt(n, numbers), state=("n", "degrees", "point"))


def _alt(n: int, coefficients: list[float]) -> str:
    squares = f"{n // 2} different squares, each of two points" if n % 2 == 0 else "squares that are all different"
    return (f"{n} points evenly spaced on the unit circle with z^{n} = 1, their {squares}, "
            f"and the values of the polynomial with coefficients {coefficients} at them. Point 1 is chosen. "
            "Sliders set the number of points, the chosen point and the angle of z^N; a point can be dragged.")
