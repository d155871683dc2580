"""The figure of chapters 2 and 3: N points on the unit circle, their squares, and a polynomial's values there."""

import cmath
import math
from collections.abc import Sequence

from . import svg
from .figure import Figure

__all__ = ["roots"]

_LARGEST = 16


def roots(n: int, coefficients: Sequence[float] = (1.0, 2.0, 1.5, -1.0), *, twist: float = 0.0,
          point: int = 1) -> Figure:
    """Show n points e^{i twist} e^{-2 pi i m / n}, m < n, their squares, and the values of a polynomial at them.

    The points solve z^n = e^{i n twist}: 1 without a twist, -1 for twist = pi / n, i for twist = pi / (2 n).
    For the chosen point z the figure builds P(z) = even(z^2) + z odd(z^2), from the even and the odd coefficients,
    and, where -z is a point too (n even), P(-z) from the same two numbers.  The reader slides n from 2 to 16,
    chooses a point, and turns all points by dragging one or by a slider, up to their next neighbours.

    Args:
        n: number of points, 2 to 16.
        coefficients: of the polynomial, lowest power first, real, 1 to 8 of them.
        twist: angle in radians by which all points are turned, 0 <= twist < 2 pi / n.
        point: index k of the point that is chosen at the start, 0 to n - 1.

    Raises:
        ValueError: n, twist or point out of range; no coefficients, more than 8, or one that is not finite.

    Source: the points of Caracal, Appendix C (b); z^N = -1 and z^N = i are not in the paper.
    """
    if not 2 <= n <= _LARGEST:
        raise ValueError(f"n={n} points; give 2 to {_LARGEST}")
    numbers = [float(c) for c in coefficients]
    if not 1 <= len(numbers) <= 8 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"coefficients are {numbers}; give 1 to 8 finite numbers")
    if not 0 <= twist < 2 * math.pi / n:
        raise ValueError(f"twist={twist:g}; for {n} points give an angle from 0 up to 2 pi / {n}, "
                         f"{2 * math.pi / n:.4f}: a larger one gives the same points again")
    if not 0 <= point < n:
        raise ValueError(f"point={point}; for {n} points give 0 to {n - 1}")
    degrees = round(math.degrees(n * twist), 6)  # of the angle of z^n
    model = {"n": n, "coefficients": numbers, "degrees": degrees, "point": point, "largest": _LARGEST}
    return Figure("roots", model, None, _alt(n, numbers, degrees, point), state=("n", "degrees", "point"))


def _power(degrees: float) -> str:
    """Name the number of absolute value 1 at an angle."""
    z = cmath.rect(1, math.radians(degrees))
    written = f"{svg.said(z.real)} {'−' if z.imag < 0 else '+'} {abs(z.imag):.2f} i"
    return {0: "1", 90: "i", 180: "−1", 270: "−i"}.get(round(degrees, 6), written)


def _alt(n: int, coefficients: list[float], degrees: float, point: int) -> str:
    squares = f"{n // 2} different squares, each of two points" if n % 2 == 0 else "squares that are all different"
    return (f"{n} points evenly spaced on the unit circle with z^{n} = {_power(degrees)}, their {squares}, "
            f"and the values of the polynomial with coefficients {coefficients} at them. Point {point} is chosen. "
            "Sliders set the number of points, the chosen point and the angle of z^N; a point can be dragged.")
