"""What `training_run` is given, made ready for drawing: the points of a log, thinned, and texts with visible signs."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Run", "drawable", "losses_of", "thin"]

_COLUMNS = 350  # points of the training curve at most: the plot is 300 to 700 pixels wide


@dataclass(frozen=True)
class Run:
    """Neighbouring points of the log that are drawn as one."""

    first: int
    last: int
    count: int
    mean: float

    @property
    def middle(self) -> float:
        """The step half way between the first and the last."""
        return (self.first + self.last) / 2


def thin(points: Sequence[tuple[int, float]], columns: int = _COLUMNS) -> list[Run]:
    """Average neighbouring `(step, loss)` points so that at most `columns` remain.

    The first point stays alone, for it is the loss before training; the others are averaged in runs of equal
    length, the last run being shorter where they do not divide.  The mean of the runs, each weighted by its
    count, is the mean of the points.  No more points than columns: each stays alone.
    """
    every = max(1, math.ceil((len(points) - 1) / (columns - 1)))
    parts = [points[:1]] + [points[k:k + every] for k in range(1, len(points), every)]
    return [Run(part[0][0], part[-1][0], len(part), math.fsum(loss for _, loss in part) / len(part))
            for part in parts]


def losses_of(log: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Return the training and the validation points of a log."""
    training, measured = ([(entry["step"], float(entry[name])) for entry in log if entry.get(name) is not None]
                          for name in ("loss", "validation_loss"))
    if not measured:
        raise ValueError("no entry of the log has a validation_loss; train past the first eval_every steps")
    return training, measured


def drawable(text: str) -> str:
    """Put visible signs for the characters of a text that draw nothing or turn the line around.

    Line ends become newlines, other control characters of ASCII their pictures (U+2400 and on), and C1
    controls, lone surrogates, direction marks and non-characters U+FFFD.  Newlines and tabs stay.
    """
    for end in ("\r\n", "\u2028", "\u2029"):
        text = text.replace(end, "\n")
    return "".join(map(_sign, text))


def _sign(character: str) -> str:
    code, kind = ord(character), unicodedata.category(character)
    if character in "\n\t\u200c\u200d":  # the last two join letters and emoji
        return character
    if code < 0x20 or code == 0x7F:
        return chr(0x2421 if code == 0x7F else 0x2400 + code)
    return "\ufffd" if kind in ("Cc", "Cf", "Cs") or code & 0xFFFE == 0xFFFE else character
