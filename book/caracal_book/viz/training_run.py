"""The figure of chapters 9 and 12: the loss of one training run, and the text that the model wrote along the way.

Everything that is said or placed is worked out here, once, from what `training_run_log` has read;
`training_run.js` draws it at the reader's width.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .figure import Figure
from .training_run_log import Run, drawable, losses_of, thin

__all__ = ["training_run"]

_HEIGHT = 220  # of the plot, in pixels, on the page
_LABEL, _TALL = 16, 12  # pixels between the labels of two baselines; of the letters of one
_OPENING = 0.05  # of the steps: untrained weights may lose far more than anything that follows


def training_run(log: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]],
                 baselines: Mapping[str, float] | None = None, prompt: str = "",
                 unit: str = "nats per token") -> Figure:
    """Show loss against step, with baselines, and with a slider over the texts written during the run.

    The training loss is thinned for drawing (see `thin`); the validation loss is drawn point by point.  For a
    chosen step the figure quotes the validation loss measured there or last before it; where there is none
    yet, the training loss.  The axis holds baselines, validation losses and the training loss after the opening
    twentieth of the run; what was above it before is drawn at the top edge.  Losses are compared with baselines
    as they are written, to two decimals.

    Args:
        log: what `Trainer.run` returns: one mapping for each step in rising order, with `step` and `loss`, and
            with `validation_loss` on measured steps.
        samples: `{"step": int, "text": str}`, the text that the model wrote after that many steps, without the
            prompt; any characters.  Step 0 is before training.
        baselines: loss by name, in the log's unit, e.g. `{"a bigram model": 2.71}`.
        prompt: what each text continues.
        unit: of the losses.

    Raises:
        ValueError: a log without validation loss, or a loss that is not finite.
    """
    losses, measured = losses_of(log)
    texts = sorted((sample["step"], sample["text"]) for sample in samples)
    rules = sorted(((drawable(name), float(loss)) for name, loss in (baselines or {}).items()),
                   key=lambda rule: (-rule[1], rule[0]))
    runs = thin(losses)
    drawn = [(run.middle, run.mean) for run in runs]
    later = [point for point in drawn if point[0] >= _OPENING * losses[-1][0]]
    heights = [y for _, y in later + measured] + [loss for _, loss in rules]
    final = measured[-1][1]
    room = 0.1 * (max(heights) - min(heights)) if rules and rules[-1][1] <= final else 0.0  # for a label below
    y_ticks = _ticks(max(min(0.0, *heights), min(heights) - room), max(heights), 5)
    readings = [_reading(step, runs, measured, unit) for step, _ in texts]
    model = {
        "training": [[x, round(y, 4)] for x, y in drawn],
        "training_name": _training_name(max(run.count for run in runs), max(y for _, y in drawn) > y_ticks[-1]),
        "validation": [list(point) for point in measured],
        "baselines": _placed(rules, final, y_ticks),
        "samples": [{"step": step, "text": drawable(text), "at": list(at), "measured": kind == "validation",
                     "said": said + _compared(at[1], rules)}
                    for (step, text), (kind, at, said) in zip(texts, readings, strict=True)],
        "prompt": drawable(prompt),
        "unit": unit,
        "last": losses[-1][0],
        "x_ticks": [[x, f"{x:,.0f}"] for x in _ticks(0, losses[-1][0], 5, whole=True) if x <= losses[-1][0]],
        "y_ticks": [[y, f"{y:.{_decimals(y_ticks)}f}"] for y in y_ticks],
        "plot_height": _HEIGHT,
        "sample": 0,
    }
    alt = _alt(measured, texts, rules, losses[-1][0], unit)
    return Figure("training_run", model, None, alt, state=("sample",),
                  computed=("training", "validation", "baselines", "samples", "x_ticks", "y_ticks"))


def _ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Return round values, at most `most` steps of 1, 2 or 5 times a power of ten, that enclose both ends."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    sizes = [k * power for k in (1, 2, 5, 10, 20) if not whole or k * power >= 1]
    for size in sizes:
        first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
        if last - first <= most:
            break
    return [round(k * size, 9) for k in range(first, max(last, first + 1) + 1)]


def _decimals(ticks: list[float]) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _training_name(every: int, beyond: bool) -> str:
    return ("training loss" + (f", mean of {every} steps" if every > 1 else "")
            + (", at first off the scale" if beyond else ""))


def _reading(step: int, runs: list[Run], measured: list[tuple[int, float]],
             unit: str) -> tuple[str, tuple[float, float], str]:
    """Return which loss is quoted at `step`, where it lies on its curve, and what is said about it."""
    when = f"step {step:,}" if step else "before training"
    earlier = [point for point in measured if point[0] <= step]
    if earlier:
        at = earlier[-1]
        behind = "" if at[0] == step else f" (measured at step {at[0]:,})"
        return "validation", at, f"{when}: validation loss {at[1]:.2f} {unit}{behind}"
    begun = [run for run in runs if run.first <= step]
    run = begun[-1] if begun else runs[0]
    what = "training loss" if begun and step else "first training loss"
    if run.count > 1:
        what, where = "mean training loss", f" (steps {run.first:,} to {run.last:,}; no validation loss yet)"
    elif step:
        where = f" (at step {run.first:,}; no validation loss yet)"
    else:
        where = "" if run.first <= 1 else f" (at step {run.first:,})"
    return "training", (run.middle, run.mean), f"{when}: {what} {run.mean:.2f} {unit}{where}"


def _compared(loss: float, rules: list[tuple[str, float]]) -> str:
    """Say which baseline the loss has passed last and which comes next, judged by the two written decimals."""
    here = round(loss, 2)
    said = []
    for word, found in (("below", [rule for rule in rules if round(rule[1], 2) > here][-1:]),
                        ("level with", [rule for rule in rules if round(rule[1], 2) == here]),
                        ("above", [rule for rule in rules if round(rule[1], 2) < here][:1])):
        said += [f"{word} {name} ({value:.2f})" for name, value in found]
    return "; " + ", ".join(said) if said else ""


def _placed(rules: list[tuple[str, float]], final: float, y_ticks: list[float]) -> list[dict[str, Any]]:
    """Give each baseline's label a height in pixels: on the side the run has left, if there is room."""
    low, high = y_ticks[0], y_ticks[-1]
    lines = [(high - loss) / (high - low) * _HEIGHT for _, loss in rules]
    over = [line >= _TALL + 5 if final < loss else line > _HEIGHT - 20
            for line, (_, loss) in zip(lines, rules, strict=True)]
    heights = [line - 5 if above else line + 15 for line, above in zip(lines, over, strict=True)]
    for k in range(len(heights)):  # downwards from the top edge, then upwards from the bottom edge
        heights[k] = max(heights[k], heights[k - 1] + _LABEL if k else _TALL)
    for k in reversed(range(len(heights))):
        heights[k] = min(heights[k], heights[k + 1] - _LABEL if k + 1 < len(heights) else _HEIGHT - 5)
    return [{"name": f"{name} {loss:.2f}", "loss": loss, "label": round(height, 1)}
            for (name, loss), height in zip(rules, heights, strict=True)]


def _alt(measured: list[tuple[int, float]], texts: list[tuple[int, str]], rules: list[tuple[str, float]],
         last: int, unit: str) -> str:
    (start, first), (end, final) = measured[0], measured[-1]
    if len(measured) == 1:
        course = f"is {final:.2f} at step {end:,}"
    else:
        verb = "falls" if final < first else "rises" if final > first else "goes"
        course = f"{verb} from {first:.2f} at step {start:,} to {final:.2f} at step {end:,}"
    steps = [f"step {step:,}" if step else "before training" for step, _ in (texts[0], texts[-1])]
    choice = (f"A slider chooses one of {len(texts)} steps, from {steps[0]} to {steps[1]}, and shows the text"
              if len(texts) > 1 else f"Below it, {steps[0]}, stands the text")
    return (f"Loss in {unit} against training step, up to step {last:,}. The validation loss {course}"
            f"{_compared(final, rules)}. {choice} that the model wrote there.")
