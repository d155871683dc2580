"""The still first frame of `training_run`: the curves, and the first and the last text, as SVG."""

from html import escape
from typing import Any

from .style import palette

__all__ = ["still"]

_WIDTH, _LEFT, _RIGHT, _TOP = 420, 38, 22, 30  # in the still's own units
_LINE, _MARGIN, _LINES = 18, 12, 3  # of the texts below the plot
_LETTERS = (_WIDTH - 2 * _MARGIN - 12) // 7  # of 7 units each in a line of a text


def still(model: dict[str, Any]) -> str:
    """Draw the first frame from the data that the page gets."""
    bottom = _TOP + model["plot_height"]
    shown = model["samples"][:1] + model["samples"][1:][-1:]
    height = bottom + 56
    words = [_stroke(f"M12 {height - 4}h22", palette.ink, 2), _stroke(f"M23 {height - 4}h0", palette.ink, 6),
             _text(40, height, "validation loss"),
             _stroke(f"M170 {height - 8}v8", palette.others[1], 3), _text(180, height, "steps with a text"),
             _stroke(f"M12 {height + 14}h22", palette.muted, 1, 'stroke-opacity="0.6"'),
             _text(40, height + 18, model["training_name"])]
    height += 22
    if model["prompt"]:
        height += _LINE + 4
        words.append(_text(_MARGIN, height, _cut(f"prompt: {model['prompt']}", 1)[0], 'font-weight="600"'))
    for sample in shown:
        height += 6
        for line in _lines(sample["said"], _LETTERS + 2):
            height += _LINE
            words.append(_text(_MARGIN, height, line))
        lines = _cut(sample["text"] or "(nothing)", _LINES)
        words.append(f'<rect x="{_MARGIN}" y="{height + 7}" width="{_WIDTH - 2 * _MARGIN}" '
                     f'height="{len(lines) * _LINE + 8}" fill="#f1f1f1"/>')
        for k, line in enumerate(lines):
            words.append(_text(_MARGIN + 6, height + 24 + k * _LINE, line,
                               'font-family="monospace" font-size="11.5"'))
        height += len(lines) * _LINE + 16
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" '
            f'font-size="12.5" fill="{palette.ink}"><rect width="{_WIDTH}" height="{height}" fill="white"/>'
            f'{"".join(_plot(model))}{"".join(words)}</svg>')


def _plot(model: dict[str, Any]) -> list[str]:
    """Draw axes, curves, baselines, the steps that have a text, and a ring at the first of them."""
    high, low = model["y_ticks"][-1][0], model["y_ticks"][0][0]
    bottom, right = _TOP + model["plot_height"], _WIDTH - _RIGHT

    def x(step: float) -> str:
        return f"{_LEFT + step / model['last'] * (right - _LEFT):.1f}"

    def y(loss: float) -> str:
        return f"{_TOP + (high - min(loss, high)) / (high - low) * model['plot_height']:.1f}"

    def curve(points: list[list[float]]) -> str:
        return "M" + "L".join(f"{x(step)} {y(loss)}" for step, loss in points)

    parts = [_text(_MARGIN, 16, f"loss, {model['unit']}")]
    for value, name in model["y_ticks"]:
        parts += [_stroke(f"M{_LEFT} {y(value)}H{right}", palette.rule, 1),
                  _text(_LEFT - 6, float(y(value)) + 4, name, f'text-anchor="end" fill="{palette.muted}"')]
    for value, name in model["x_ticks"]:
        parts.append(_text(x(value), bottom + 16, name, f'text-anchor="middle" fill="{palette.muted}"'))
    parts.append(_text((_LEFT + right) / 2, bottom + 32, "training step", 'text-anchor="middle"'))
    parts.append(_stroke(curve(model["training"]), palette.muted, 1, 'stroke-opacity="0.6"'))
    parts += [_stroke(f"M{_LEFT} {y(rule['loss'])}H{right}", palette.muted, 1.5, 'stroke-dasharray="6 4"')
              for rule in model["baselines"]]
    parts += [_stroke(f"M{x(sample['step'])} {bottom}v-9", palette.others[1], 3) for sample in model["samples"]]
    parts.append(_stroke(curve(model["validation"]), palette.ink, 2))
    parts.append(_stroke("".join(f"M{x(step)} {y(loss)}h0" for step, loss in model["validation"]),
                         palette.ink, min(6, max(2, 0.6 * (right - _LEFT) / len(model["validation"])))))
    parts += [_text(right - 6, _TOP + rule["label"], rule["name"],
                    'text-anchor="end" stroke="white" stroke-width="4" paint-order="stroke"')
              for rule in model["baselines"]]
    step, loss = model["samples"][0]["at"]
    parts.append(f'<circle cx="{x(step)}" cy="{y(loss)}" r="7" fill="{palette.others[1]}" '
                 f'stroke="{palette.ink}" stroke-width="2"/>')
    return parts


def _stroke(path: str, colour: str, width: float, more: str = "") -> str:
    return (f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round" '
            f'stroke-linejoin="round" {more}/>')


def _text(x: float | str, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" xml:space="preserve" {more}>{escape(words)}</text>'


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
