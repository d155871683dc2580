"""The still first frame of `training_run`: the curves, and the first and the last text, as SVG."""

from typing import Any

from . import svg
from .style import palette

__all__ = ["still"]

_WIDTH, _LEFT, _RIGHT, _TOP = 420, 38, 22, 30  # in the still's own units
_LINE, _MARGIN, _LINES = 18, 12, 3  # of the texts below the plot
_LETTERS = (_WIDTH - 2 * _MARGIN - 12) // 7  # of 7 units each in a line of a text
_FAINT = {"stroke": palette.muted, "stroke_opacity": 0.6}  # the training loss


def still(model: dict[str, Any]) -> str:
    """Draw the first frame from the data that the page gets."""
    bottom = _TOP + model["plot_height"]
    shown = model["samples"][:1] + model["samples"][1:][-1:]
    height = bottom + 56
    words = [_stroke("M", 12, height - 4, "h22", stroke=palette.ink, stroke_width=2),
             _stroke("M", 23, height - 4, "h0", stroke=palette.ink, stroke_width=6),
             svg.text(40, height, "validation loss"),
             _stroke("M", 170, height - 8, "v8", stroke=palette.others[1], stroke_width=3),
             svg.text(180, height, "steps with a text"),
             _stroke("M", 12, height + 14, "h22", **_FAINT), svg.text(40, height + 18, model["training_name"])]
    height += 22
    if model["prompt"]:
        height += _LINE + 4
        words.append(_spaced(_MARGIN, height, _cut(f"prompt: {model['prompt']}", 1)[0], weight=600))
    for sample in shown:
        said, lines = _lines(sample["said"], _LETTERS + 2), _cut(sample["text"] or "(nothing)", _LINES)
        words.append(svg.lines(_MARGIN, height + 6 + _LINE, said, _LINE))
        height += 6 + len(said) * _LINE
        words.append(svg.rect(_MARGIN, height + 7, _WIDTH - 2 * _MARGIN, len(lines) * _LINE + 8, fill=palette.shade))
        words += [_spaced(_MARGIN + 6, height + 24 + k * _LINE, line, font_family="monospace", font_size=11.5)
                  for k, line in enumerate(lines)]
        height += len(lines) * _LINE + 16
    return svg.frame(_WIDTH, height, *_plot(model), *words, size=12.5)


def _plot(model: dict[str, Any]) -> list[str]:
    """Draw axes, curves, baselines, the steps that have a text, and a ring at the first of them."""
    high, low = model["y_ticks"][-1][0], model["y_ticks"][0][0]
    bottom, right = _TOP + model["plot_height"], _WIDTH - _RIGHT

    def x(step: float) -> float:
        return _LEFT + step / model["last"] * (right - _LEFT)

    def y(loss: float) -> float:
        return _TOP + (high - min(loss, high)) / (high - low) * model["plot_height"]

    def curve(points: list[list[float]], **look: object) -> str:
        steps = [step for time, loss in points for step in ("L", x(time), y(loss))]
        return _stroke("M", *steps[1:], **look)

    parts = [svg.text(_MARGIN, 16, f"loss, {model['unit']}")]
    for value, name in model["y_ticks"]:
        parts += [_stroke("M", _LEFT, y(value), "H", right, stroke=palette.rule),
                  svg.text(_LEFT - 9, y(value) + 4, name, "end", fill=palette.muted)]
    parts += [svg.text(x(value), bottom + 16, name, "middle", fill=palette.muted) for value, name in model["x_ticks"]]
    parts += [svg.text((_LEFT + right) / 2, bottom + 32, "training step", "middle"), curve(model["training"], **_FAINT)]
    parts += [_stroke("M", _LEFT, y(rule["loss"]), "H", right, stroke=palette.muted, stroke_width=1.5,
                      stroke_dasharray="6 4") for rule in model["baselines"]]
    parts += [_stroke("M", x(sample["step"]), bottom, "v-9", stroke=palette.others[1], stroke_width=3)
              for sample in model["samples"]]
    parts.append(curve(model["validation"], stroke=palette.ink, stroke_width=2))
    dots = [step for time, loss in model["validation"] for step in ("M", x(time), y(loss), "h0")]
    parts.append(_stroke(*dots, stroke=palette.ink,
                         stroke_width=min(6, max(2, 0.6 * (right - _LEFT) / len(model["validation"])))))
    parts += [svg.text(right - 6, _TOP + rule["label"], rule["name"], "end", stroke=palette.paper, stroke_width=4,
                       paint_order="stroke") for rule in model["baselines"]]
    step, loss = model["samples"][0]["at"]
    return [*parts, svg.circle(x(step), y(loss), 7, fill=palette.others[1], stroke=palette.ink, stroke_width=2)]


def _stroke(*steps: str | float, **look: object) -> str:
    return svg.path(*steps, stroke_linecap="round", stroke_linejoin="round", **look)


def _spaced(x: float, y: float, words: str, **look: object) -> str:
    """Write words with every space that they have."""
    return svg.text(x, y, words, **{"xml:space": "preserve"}, **look)


def _cut(text: str, count: int) -> list[str]:
    """Break a text into `count` lines at most, the last one ending in an ellipsis if more follows."""
    lines = _lines(text[:(count + 1) * _LETTERS], _LETTERS - 1)
    return lines[:count - 1] + [lines[count - 1] + "…"] if len(lines) > count else lines


def _lines(text: str, letters: int) -> list[str]:
    """Break a text into lines, at spaces where there are any; a sign beyond Latin counts as two letters."""
    lines = []
    for paragraph in text.expandtabs(4).split("\n"):
        line, width, space = "", 0, 0
        for character in paragraph:
            line, width = line + character, width + 1 + (ord(character) >= 0x300)
            space = len(line) if character == " " else space
            if width > letters:
                cut = space or len(line) - 1
                lines.append(line[:cut])
                line, space = line[cut:], 0
                width = sum(1 + (ord(c) >= 0x300) for c in line)
        lines.append(line)
    return lines
