"""The small drawing under a chapter's title: the whole model and the steps of the book, with the present ones lit."""

from . import svg
from .model_diagram import Drawing
from .style import palette

__all__ = ["where_we_stand"]

_WIDTH, _HEIGHT = 384, 222  # of the drawing, in its own units: a phone shows it nearly as large
_STEPS = ("a strange idea", "should it work?", "built and exact", "put to the test", "what it learned",
          "when to use it")
_SUM = ("pad", "FFT", "multiply", "inverse FFT", "cut")
_MODULE = ("short convolution", "content", "gate", *_SUM)
_MODEL = ("text", "tokens", *_MODULE, "window", "next word")
_LIT = {  # by chapter or investigation: parts of the model, and steps
    1: (_SUM, (1, 2)), 2: (("FFT", "multiply", "inverse FFT"), (1, 2)), 3: (("pad",), (3,)), 4: (_SUM, (3,)),
    5: (("gate", *_SUM), (2, 3)), 6: (_MODULE, (3,)), 7: (("window",), (3,)), 8: (_MODEL, (3,)), 9: (_MODEL, (4,)),
    10: (("text", "tokens", "next word"), (3,)), 11: ((*_SUM, "window"), (3,)), 12: (_MODEL, (6,)),
    "A": (("content", "gate", *_SUM), (5,)), "B": (("gate",), (5,)), "C": ((), (6,))}
_BOXES = {  # what is written, left, top, width, height, colour of a lit one
    "text": ("text", 8, 10, 52, 26, palette.ink), "tokens": ("tokens", 78, 10, 64, 26, palette.ink),
    "next word": ("next word", 288, 10, 88, 26, palette.ink),
    "short convolution": ("short conv.", 18, 64, 84, 46, palette.ink),
    "content": ("content", 116, 64, 60, 21, palette.content), "gate": ("gate", 116, 89, 60, 21, palette.gate),
    "pad": ("pad", 196, 86, 32, 20, palette.result), "FFT": ("FFT", 230, 86, 34, 20, palette.result),
    "multiply": ("×", 266, 86, 22, 20, palette.result), "inverse FFT": ("FFT⁻¹", 290, 86, 44, 20, palette.result),
    "cut": ("cut", 336, 86, 28, 20, palette.result), "window": ("window of attention", 190, 124, 180, 24, palette.ink)}


def where_we_stand(chapter: int | str) -> Drawing:
    """Draw the whole model and the six steps of the book, with those of a chapter lit.

    Args:
        chapter: 1 to 12, or the letter of an investigation, "A" to "C".
    """
    parts, steps = _LIT[chapter]
    summed = any(part in parts for part in _SUM)
    marks = [_arrow(60, 78, 23), _arrow(142, 160, 23), _arrow(270, 288, 23),
             _box("blocks", 160, 10, 110, 26, palette.ink, parts == _MODEL),
             svg.path("M", 160, 36, "L", 8, 50, "M", 270, 36, "L", 376, 50, stroke=palette.muted,
                      stroke_dasharray="3 4"),
             svg.rect(8, 50, 368, 106, rx=5, fill="none", stroke=palette.muted),
             _arrow(102, 116, 75), _arrow(102, 116, 99), _arrow(176, 190, 87),
             svg.rect(190, 62, 180, 50, rx=4, fill="none", stroke=palette.result if summed else palette.muted,
                      stroke_width=2 if summed else 1),
             svg.text(280, 79, "the sum", "middle", fill=_ink(summed)),
             svg.text(18, 141, "in some blocks instead:", fill=palette.muted)]
    marks += [_box(*look, name in parts) for name, look in _BOXES.items()]
    for k, words in enumerate(_STEPS):
        marks.append(_box(words, 8 + 124 * (k % 3), 166 + 27 * (k // 3), 120, 23, palette.ink, k + 1 in steps))
    alt = ("The whole model: text, tokens, blocks, next word. In a block: a short convolution, content and gate, and "
           "the sum in five steps, pad, FFT, multiply, inverse FFT, cut; some blocks have a window of attention "
           f"instead. Lit for {'chapter' if isinstance(chapter, int) else 'investigation'} {chapter}: "
           f"{'the whole model' if parts == _MODEL else ', '.join(parts) or 'no part of it'}. Steps of the book: "
           f"{', '.join(_STEPS)}. Lit: {' and '.join(_STEPS[k - 1] for k in steps)}.")
    return Drawing(svg.frame(_WIDTH, _HEIGHT, svg.element("title", alt), *marks, size=12.5), alt)


def _ink(lit: bool) -> str:
    return palette.ink if lit else palette.muted


def _box(words: str, x: float, y: float, width: float, height: float, colour: str, lit: bool) -> str:
    look = {"fill": colour, "fill_opacity": 0.2, "stroke_width": 2} if lit else {"fill": "none", "stroke_width": 1}
    return (svg.rect(x, y, width, height, rx=4, stroke=colour if lit else palette.muted, **look)
            + svg.text(x + width / 2, y + height / 2 + 4.5, words, "middle", fill=_ink(lit)))


def _arrow(x: float, to: float, y: float) -> str:
    return (svg.path("M", x, y, "H", to - 6, stroke=palette.muted) + svg.path("M", to, y, "l-7 -4v8z",
                                                                          fill=palette.muted))
