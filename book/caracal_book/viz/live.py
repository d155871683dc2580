"""A reader's own function behind controls: in a kernel every change runs it, a page shows what it gave beforehand."""

import base64
import contextlib
import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from numbers import Real
from typing import Any

from . import svg
from .figure import Figure
from .style import dark, palette

__all__ = ["Texts", "live"]

_MOST = 400  # choices that a page holds the answers to
_WIDTH, _LETTERS = 420, 52  # of the still, in its own units, and of one of its lines
_DOTS, _COLOURS = 144, 64  # of a plot, dots to the inch; a page may hold hundreds
_PAINTS = [[getattr(palette, name), getattr(dark, name)] for name in ("ink", "content", "gate", "result", "wrapped")]
_PAINTS += [list(pair) for pair in zip(palette.others, dark.others, strict=True)]  # other greys are ink, less opaque


class Texts(tuple):
    """Texts for a control of `live`: in a kernel a box to write one's own in, on a page a choice among these."""

    def __new__(cls, *texts: str) -> "Texts":
        return super().__new__(cls, texts)


def live(function: Callable[..., Any], alt: str, /, **controls: Sequence[Any]) -> Figure:
    """Show what a function returns, with a control for each of its arguments.

    In a notebook with a running kernel and anywidget, each change of a control calls the function again; edit it, run
    its cell, and the control shows the new one.  On a page, and where anywidget is missing, the same controls show
    what the function returned when the cell ran, for every choice.

    Args:
        function: called with one value for each control by name.  It returns a text, a mapping of names to numbers
            (drawn as bars), a matplotlib figure (closed afterwards), or a list of these; what it prints stands first.
        alt: what there is to see, in words.
        controls: for each argument the values to choose from.  Numbers become a slider, `N=range(8, 17)`, anything
            else a menu, and `viz.Texts("a", "b")` a box to write in.  The control starts at the argument's default if
            it has one, otherwise at the first value.

    Raises:
        ValueError: no control, one without values or whose default is not among them, or too many choices for a page.
        TypeError: an argument without a control or the other way round; an answer of another kind.

    Example:
        >>> live(lambda n: "a" * n, "a letter, repeated", n=range(1, 4))
        Figure('live'): a letter, repeated
    """
    return Live(function, alt, controls)


class Live(Figure):
    """What `live` returns: a figure whose frames a function computed, and which asks it again in a kernel."""

    def __init__(self, function: Callable[..., Any], alt: str, controls: Mapping[str, Sequence[Any]]):
        values = {name: given if isinstance(given, Texts) else tuple(given) for name, given in controls.items()}
        start = _start(function, values)
        count = 1
        for choices in values.values():
            count *= len(choices)
        if count > _MOST:
            sizes = " x ".join(str(len(choices)) for choices in values.values())
            raise ValueError(f"{sizes} = {count} choices, and a page holds {_MOST} at most; give fewer values")
        self._function, self._choices = function, values
        frames: dict[str, int] = {}
        places = []
        for chosen in itertools.product(*values.values()):
            frame = json.dumps(self._parts(chosen), allow_nan=False)
            places.append(frames.setdefault(frame, len(frames)))
        pages = [json.loads(frame) for frame in frames]
        place = 0
        for choices, number in zip(values.values(), start, strict=True):
            place = place * len(choices) + number
        model = {"controls": [_control(name, choices) for name, choices in values.items()], "values": start,
                 "answer": {"values": start, "parts": pages[places[place]]}, "frames": pages, "places": places,
                 "paints": _PAINTS}
        super().__init__("live", model, _still(model), alt, state=("values",))

    def widget(self) -> Any:
        """Return the controls as an anywidget that calls the function at every change.

        The trait `values` holds for each control the number of the value chosen, or a text of the reader's own;
        `answer` what the function gave.

        Raises:
            ImportError: anywidget is not installed; the message says how to install it.
        """
        asking = Figure("live", self.model | {"frames": None, "places": None}, _still(self.model), self.alt, self.state)
        widget = asking.widget()
        widget.observe(lambda change: widget.set_trait("answer", self.answer(change.new)), names="values")
        return widget

    def answer(self, values: Sequence[int | str]) -> dict[str, Any]:
        """Return `{"values", "parts"}`: what the function gives now, or in one line why it gives nothing."""
        try:
            chosen = [value if isinstance(value, str) else choices[value]
                      for value, choices in zip(values, self._choices.values(), strict=True)]
            parts = self._parts(chosen)
        except Exception as error:  # the reader's own code: what it says belongs where they look
            parts = [{"error": f"{type(error).__name__}: {error}"}]
        return {"values": list(values), "parts": parts}

    def _parts(self, chosen: Sequence[Any]) -> list[dict[str, Any]]:
        """Call the function and return what it printed and returned, as `live.js` draws it."""
        named = dict(zip(self._choices, chosen, strict=True))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                given = self._function(**named)
            except Exception as error:
                error.add_note(f"in {_name(self._function)}({', '.join(f'{k}={v!r}' for k, v in named.items())})")
                raise
        several = given if isinstance(given, list | tuple) else [given]
        texts = [printed.getvalue().rstrip("\n")] if printed.getvalue() else []
        where = ", ".join(f"{_label(name)} {_said(value)}" for name, value in named.items())
        return [_part(part, where) for part in [*texts, *several] if part is not None]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any] | tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(include, exclude)
        if _has_kernel():
            with contextlib.suppress(ImportError):
                shown = self.widget()._repr_mimebundle_()
                data, metadata = shown if isinstance(shown, tuple) else (shown, {})
                return data | bundle, metadata  # in which Colab finds where its widgets' scripts are
        return bundle


def _has_kernel() -> bool:
    """Whether a notebook's kernel runs this code: a widget needs one to talk to."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _start(function: Callable[..., Any], controls: Mapping[str, Sequence[Any]]) -> list[int]:
    """Return the number of the value at which each control starts, after checking them against the arguments."""
    if not controls:
        raise ValueError("no controls; give the values of each argument, for example N=range(8, 17)")
    arguments = signature(function).parameters
    try:
        signature(function).bind(**dict.fromkeys(controls))
    except TypeError as error:
        raise TypeError(f"{_name(function)} takes {', '.join(arguments) or 'nothing'}, and there are controls for "
                        f"{', '.join(controls)}: {error}") from None
    start = []
    for name, choices in controls.items():
        default = arguments[name].default if name in arguments else Parameter.empty
        if not choices:
            raise ValueError(f"{name} has no values to choose from")
        if isinstance(choices, Texts) and not all(isinstance(text, str) for text in choices):
            raise ValueError(f"{name}: Texts are strings, and these are {list(choices)}")
        if default is not Parameter.empty and default not in choices:
            raise ValueError(f"{name} starts at {default!r}, its default, which is not among {list(choices)}")
        start.append(0 if default is Parameter.empty else choices.index(default))
    return start


def _label(name: str) -> str:
    return name.replace("_", "-")


def _said(value: Any) -> str:
    return "none" if value is None else svg.minus(value) if isinstance(value, Real) else str(value)


def _control(name: str, choices: Sequence[Any]) -> dict[str, Any]:
    numbers = all(value is None or isinstance(value, Real) and not isinstance(value, bool) for value in choices)
    kind = "text" if isinstance(choices, Texts) else "slider" if numbers else "choice"
    return {"name": _label(name), "kind": kind, "options": [_said(value) for value in choices]}


def _part(given: Any, where: str) -> dict[str, Any]:
    """Return one answer as a mapping that JSON can hold."""
    if isinstance(given, str):
        return {"text": given}
    if isinstance(given, Mapping):
        return {"bars": [[str(name), round(float(number), 6)] for name, number in given.items()]}
    if hasattr(given, "savefig"):
        return _image(given, where)
    raise TypeError(f"a function behind controls returned {type(given).__name__}; it may return a text, a mapping of "
                    "names to numbers, a matplotlib figure, or a list of these")


def _image(figure: Any, where: str) -> dict[str, Any]:
    """Draw a matplotlib figure, and close it, so that the notebook does not show it once more."""
    from matplotlib import pyplot
    from PIL import Image

    file, small = io.BytesIO(), io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS)
    Image.open(file).convert("RGB").quantize(_COLOURS).convert("RGB").save(small, "WEBP", lossless=True, quality=100)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())  # CSS has 96 pixels to the inch
    pyplot.close(figure)
    return {"image": f"data:image/webp;base64,{base64.b64encode(small.getvalue()).decode()}",
            "alt": f"the plot for {where}", "width": width, "height": height}


def _still(model: Mapping[str, Any]) -> str:
    """Draw the first frame as SVG: the values of the controls, and below what the function gave for them."""
    y, marks = 20.0, []
    for control, value in zip(model["controls"], model["values"], strict=True):
        marks.append(svg.text(12, y, f"{control['name']} = {control['options'][value]}", weight=600))
        y += 19
    for part in model["answer"]["parts"]:
        if "bars" in part:
            reach = max((abs(number) for _, number in part["bars"]), default=0) or 1
            for name, number in part["bars"]:
                marks += [svg.text(12, y + 4, name), svg.rect(150, y - 6, (_WIDTH - 220) * abs(number) / reach, 12.0,
                                                             fill=palette.ink if number >= 0 else "none",
                                                             stroke=palette.ink),
                          svg.text(_WIDTH - 12, y + 4, svg.said(number), "end")]
                y += 19
        elif "image" in part:
            across, down = _WIDTH - 24, (_WIDTH - 24) * part["height"] / part["width"]
            marks.append(svg.element("image", href=part["image"], x=12, y=y - 8, width=across, height=down))
            y += down + 12
        else:
            rows = [line[k:k + _LETTERS] or " " for line in part["text"].splitlines()
                    for k in range(0, max(len(line), 1), _LETTERS)]
            marks.append(svg.lines(12, y + 4, rows))
            y += 19 * len(rows)
        y += 8
    return svg.frame(_WIDTH, y + 4, *marks)
