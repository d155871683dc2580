"""What `training_run` is given, checked: the points of a log, thinned for drawing, the texts and the baselines.

Whatever cannot be drawn is refused here with a `ValueError` of one line that says what was given and what is accepted.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Run", "baselines_of", "drawable", "losses_of", "name_of", "texts_of", "thin"]

_COLUMNS = 350  # points of the training curve at most: the plot is 300 to 700 pixels wide
_LONGEST_NAME = 40  # characters that fit beside a value into the plot of a phone


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
    """Return the training and the validation points of a log, after checking it."""
    if len(log) == 0:
        raise ValueError("the log is empty; give what Trainer.run returns, after at least one step")
    training, measured = [], []
    for number, entry in enumerate(log):
        for key in ("step", "loss"):
            if key not in entry:
                raise ValueError(f"log entry {number} has no {key!r}; each entry needs step and loss")
        step = _step(entry["step"], f"log entry {number}")
        if training and step <= training[-1][0]:
            raise ValueError(f"log entry {number} is step {step} after step {training[-1][0]}; steps must rise")
        training.append((step, _finite(entry["loss"], f"loss at step {step}")))
        if entry.get("validation_loss") is not None:
            measured.append((step, _finite(entry["validation_loss"], f"validation loss at step {step}")))
    if not measured:
        raise ValueError("no entry of the log has a validation_loss; train past the first eval_every steps")
    if training[-1][0] < 1:
        raise ValueError("the log ends at step 0; give the log of at least one step")
    return training, measured


def texts_of(samples: Sequence[Mapping[str, Any]], last: int) -> list[tuple[int, str]]:
    """Return the samples as `(step, text)` in the order of their steps, after checking them."""
    if len(samples) == 0:
        raise ValueError("no samples; give at least one {'step': ..., 'text': ...}")
    texts: dict[int, str] = {}
    for number, sample in enumerate(samples):
        if "step" not in sample or not isinstance(sample.get("text"), str):
            raise ValueError(f"sample {number} is {dict(sample)!r:.60}; give {{'step': int, 'text': str}}")
        step = _step(sample["step"], f"sample {number}")
        if step > last:
            raise ValueError(f"sample {number} is of step {step}; the log ends at step {last}")
        if step in texts:
            raise ValueError(f"two samples are of step {step}; give one for each step")
        texts[step] = sample["text"]
    return sorted(texts.items())


def baselines_of(baselines: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the baselines as `(name, loss)` from the highest loss to the lowest, after checking them."""
    found = [(name_of(name, "baseline name"), _finite(loss, f"baseline {name!r}"))
             for name, loss in baselines.items()]
    return sorted(found, key=lambda rule: (-rule[1], rule[0]))


def _step(step: Any, where: str) -> int:
    if isinstance(step, bool) or not hasattr(step, "__index__") or step < 0:
        raise ValueError(f"{where} has step {step!r}; give a whole number >= 0")
    return int(step)


def _finite(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} is {value!r}; give a finite number")
    return number


def name_of(name: Any, what: str) -> str:
    """Return a name in one line of drawable characters, after checking that it is one and fits into the plot."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        raise ValueError(f"{what} is {name!r}; give a string of 1 to {_LONGEST_NAME} characters")
    return " ".join(drawable(name).split())


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
