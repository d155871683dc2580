"""The picture of chapter 8: a model, a block of it, and the inside of both mixers, drawn from a configuration.

It stands still.  What is written in a typewriter face is the name of a module, in `Caracal` as in `minimal`.
"""

from dataclasses import dataclass
from html import escape

from caracal_min.config import CaracalConfig

from . import svg
from .style import palette

__all__ = ["Drawing", "model_diagram"]

_WIDTH, _TOP, _MARGIN = 440, 40, 10  # of the drawing, in its own units
_LEFT, _COLUMN = 12, 116  # the model: where its column begins, and how wide it is
_RIGHT, _PANEL = 158, 272  # the insides: likewise
_BOX, _GAP = 27, 15  # height of a box, and of an arrow
_THIN, _THICK = 1.3, 3  # of a stroke


def _tint(colour: str, opacity: float) -> dict:
    return {"fill": colour, "fill_opacity": opacity, "stroke": colour}


# How a box looks, by what it holds.
_PLAIN, _WINDOW = {"fill": palette.shade, "stroke": palette.muted}, _tint(palette.muted, 0.16)
_CONTENT, _GATE, _RESULT = _tint(palette.content, 0.11), _tint(palette.gate, 0.15), _tint(palette.result, 0.13)


@dataclass(frozen=True)
class Drawing:
    """A still figure that a notebook shows as an image: `svg`, and in `alt` what it shows, in words."""

    svg: str
    alt: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing: {self.alt}"


def model_diagram(config: CaracalConfig) -> Drawing:
    """Draw the model of a configuration: its blocks in order, and what is inside a block and inside each mixer.

    Source: Caracal, Figure 1, Section 3.2 and Appendix E.
    """
    attends = bool(config.attention_layers)
    kinds = "".join("A" if i in config.attention_layers else "F" for i in range(config.n_layers))
    model, first, below = _model(config, kinds)
    block, end = _block("F or A" if attends else "F")
    zoom = [svg.path("M", _LEFT + _COLUMN, y, "L", _RIGHT, to, stroke=palette.muted, stroke_dasharray="3 4")
            for y, to in zip(first, (_TOP + 4, end - 4), strict=True)]
    fourier, end = _fourier(config, end + 12)
    attention, end = _attention(config, end + 12) if attends else ([], end)
    height = round(max(below, end)) + _MARGIN
    head = f"{config.n_layers} blocks, D = {config.d_model}, H = {config.n_heads}"
    if attends:
        head += f", w = {config.window_size}"
    alt = _alt(config, kinds)
    return Drawing(svg.frame(_WIDTH, height, svg.element("title", escape(alt)),
                             svg.text(_LEFT, 24, head, weight=600, font_size=15),
                             *zoom, *model, *block, *fourier, *attention, size=13.5), alt)


def _model(config: CaracalConfig, kinds: str) -> tuple[list[str], tuple[float, float], float]:
    """Draw the column from tokens to logits; return it, the top and bottom of the first block, and where it ends."""
    middle, y = _LEFT + _COLUMN / 2, _TOP + 18.0
    parts = [svg.text(middle, y - 5, "tokens (B, L)", "middle")]
    for name in ("embedding", *(["positions"] if config.positional_encoding else [])):
        parts += [_down(middle, y, y + _GAP), _named(_LEFT, y + _GAP, _COLUMN, name)]
        y += _GAP + _BOX
    parts += [_down(middle, y, y + 24), svg.text(middle - 7, y + 16, "(B, L, D)", "end", fill=palette.muted)]
    y += 24
    row = max(18.0, min(26.0, 312 / len(kinds)))
    first = (y, y + row)
    for i, kind in enumerate(kinds):
        parts += [_rect(_LEFT, y, _COLUMN, row, _RESULT if kind == "F" else _WINDOW, 0),
                  svg.text(_LEFT + 26, y + row / 2 + 5, i, "end", fill=palette.muted),
                  svg.text(middle, y + row / 2 + 5, kind, "middle", 600)]
        y += row
    for name, after in (("norm", ""), ("embedding", "ᵀ")):
        parts += [_down(middle, y, y + _GAP), _named(_LEFT, y + _GAP, _COLUMN, name, after=after)]
        y += _GAP + _BOX
    parts += [_down(middle, y, y + _GAP), svg.text(middle, y + _GAP + 15, "logits (B, L, V)", "middle")]
    return parts, first, y + _GAP + 20


def _block(kinds: str) -> tuple[list[str], float]:
    """Draw a block; return it and where it ends, as the next two do."""
    stream, norm, inside, half = _RIGHT + 22, _RIGHT + 46, _RIGHT + 158, 64
    start, end = _TOP + 30, _TOP + 30 + 2 * half
    parts = [_line("M", stream, start, "V", end)]
    for y, names, after in ((start + 22, ("mixer_norm", "mixer"), kinds),
                            (start + 22 + half, ("mlp_norm", "mlp"), "SwiGLU")):
        back, corner = y + 28, inside + 51
        parts += [_across(stream, norm, y), _named(norm, y - _BOX / 2, 96, names[0]),
                  _across(norm + 96, inside, y), _named(inside, y - _BOX / 2, 102, names[1], after=f": {after}"),
                  _line("M", corner, y + _BOX / 2, "V", back, "H", stream + 16),
                  svg.path("M", stream + 9, back, "l8 -5v10z", fill=palette.ink),
                  svg.circle(stream, back, 9, fill=palette.paper, stroke=palette.ink, stroke_width=_THIN),
                  svg.text(stream, back + 5, "+", "middle")]
    return [_panel(_TOP, end + 8, "a block"), *parts], end + 8


def _fourier(config: CaracalConfig, top: float) -> tuple[list[str], float]:
    left, width, middle, y = _RIGHT + 12, _PANEL - 24, _RIGHT + _PANEL / 2, top + 30
    half = width / 2 - 8
    right = left + width - half
    content, gate = left + half / 2, right + half / 2
    parts = []
    if config.pre_conv:
        parts += [_named(left, y, width, "pre_conv", after=": three tokens, causal"), _down(middle, y + _BOX, y + 42)]
        y += _BOX + _GAP
    parts += [_named(left, y, width, "norm"), *(_down(x, y + _BOX, y + _BOX + _GAP) for x in (content, gate))]
    y += _BOX + _GAP
    parts += [_named(left, y, half, "to_value", _CONTENT), _named(right, y, half, "to_gate", _GATE)]
    y += _BOX
    begins = y
    if config.gate == "two_stage":
        parts += [_down(gate, y, y + _GAP), _rect(right, y + _GAP, half, _BOX, _GATE),
                  svg.text(gate, y + _GAP + 18, "SiLU", "middle"),
                  _down(gate, y + _GAP + _BOX, y + 2 * _GAP + _BOX),
                  _named(right, y + 2 * _GAP + _BOX, half, "gate_mix", _GATE)]
        y += 2 * (_GAP + _BOX)
    parts += [*_stream(content, begins, y + 24, "v", palette.content), *_stream(gate, y, y + 24, "g", palette.gate),
              svg.text(middle, y + 17, "(B, D, L)", "middle", fill=palette.muted)]
    y += 24
    parts += [_rect(left, y, width, 46, _RESULT), svg.text(middle, y + 19, "causal convolution", "middle"),
              svg.text(middle, y + 37, "pad, FFT, multiply, FFT⁻¹, cut", "middle"),
              *_stream(middle, y + 46, y + 70, "r", palette.result), _named(left, y + 70, width, "to_out")]
    end = y + 70 + _BOX + 10
    return [_panel(top, end, "mixer F: a Fourier module"), *parts], end


def _attention(config: CaracalConfig, top: float) -> tuple[list[str], float]:
    left, y = _RIGHT + 12, top + 30
    middle, end = y + 21, y + 42 + 10
    parts = [_named(left, middle - _BOX / 2, 60, "to_qkv"), _across(left + 60, left + 73, middle),
             _rect(left + 73, y, 102, 42, _WINDOW), svg.text(left + 124, y + 17, "softmax over", "middle"),
             svg.text(left + 124, y + 34, f"{config.window_size} tokens", "middle"),
             _across(left + 175, left + 188, middle), _named(left + 188, middle - _BOX / 2, 60, "to_out")]
    return [_panel(top, end, "mixer A: window attention"), *parts], end


def _alt(config: CaracalConfig, kinds: str) -> str:
    start = "embedding, positions" if config.positional_encoding else "embedding"
    gate = "to_gate, SiLU and gate_mix" if config.gate == "two_stage" else "to_gate"
    alt = (f"Left, the model from top to bottom: tokens, {start}, {len(kinds)} blocks of the kinds {' '.join(kinds)}, "
           "norm, the embedding again, logits. Right, a block: a stream to which first a mixer, then an MLP adds what "
           "it makes of a normalised copy. Below it mixer F, the Fourier module: "
           f"{'pre_conv, norm' if config.pre_conv else 'norm'}, then two ways, through to_value to the content v and "
           f"through {gate} to the gate g; their causal convolution r; to_out.")
    if config.attention_layers:
        alt += f" Mixer A, window attention: to_qkv, a softmax over {config.window_size} tokens, to_out."
    return alt


def _rect(x: float, y: float, width: float, height: float, look: dict, corner: float = 4) -> str:
    return svg.rect(x, y, width, height, rx=corner, stroke_width=_THIN, **look)


def _named(x: float, y: float, width: float, name: str, look: dict = _PLAIN, after: str = "") -> str:
    """Draw a box that holds the name of a module, and words after it."""
    words = svg.element("tspan", name, font_family="monospace") + escape(after)
    return _rect(x, y, width, _BOX, look) + svg.element("text", words, x=x + width / 2, y=y + 18, text_anchor="middle")


def _panel(top: float, end: float, title: str) -> str:
    return (_rect(_RIGHT, top, _PANEL, end - top, {"fill": palette.paper, "stroke": palette.rule}, 6)
            + svg.text(_RIGHT + 12, top + 19, title, weight=600))


def _line(*steps: str | float, colour: str = palette.ink, width: float = _THIN) -> str:
    return svg.path(*steps, stroke=colour, stroke_width=width)


def _down(x: float, y: float, to: float) -> str:
    return _line("M", x, y, "V", to - 7) + svg.path("M", x, to, "l-5 -8h10z", fill=palette.ink)


def _across(x: float, to: float, y: float) -> str:
    return _line("M", x, y, "H", to - 7) + svg.path("M", to, y, "l-8 -5v10z", fill=palette.ink)


def _stream(x: float, y: float, to: float, letter: str, colour: str) -> list[str]:
    """Draw one of v, g and r as a thick arrow in its colour."""
    return [_line("M", x, y, "V", to - 7, colour=colour, width=_THICK),
            svg.path("M", x, to, "l-6 -9h12z", fill=colour),
            svg.text(x + 9, to - 7, letter, weight=600, font_style="italic", font_size=15)]
