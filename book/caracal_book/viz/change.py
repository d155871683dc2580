"""Figures of what a change of the text or of the model does to each prediction of a trained model."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor

from caracal_min import Caracal

from ..experiments.nine_numbers import weights_and_sum
from ..web_export import dequantize_rows, quantize_rows, web_scripts
from .engine import PARTS
from .figure import Figure
from .trace import KEPT, Reading, compare, in_the_page, mean_gates_of, pieces_of, read, rounded_to

__all__ = ["change_gates", "change_last_word", "change_points", "change_windows"]

_MOVES = 1e-3  # of a probability: less is rounding
_LAGS = (1, 2, 4, 8, 16)
_WRITTEN = 8  # tokens


def change_last_word(model: Caracal, text: str, words: Sequence[str], name: str = "micro",
                     folder: str = "_static/micro") -> Figure:
    """Show which predictions of a model move when the last word of a text changes, with causal sums and with others.

    The others run over all tokens: the convolution is cyclic, over as many points as there are tokens; and then
    attention sees as far ahead as back, too.  How far a prediction moves is half the sum over the vocabulary of
    abs(p - p').

    Args:
        model: with a tokenizer of the kind "gpt2:N"; a page has its weights in eight bits, and so has the recording.
        text: the text.
        words: others for its place, at least one; the figure opens with the first.
        name, folder: as `continuation`.

    Raises:
        ValueError: a text of fewer than two words, no other word, or no such tokenizer.
    """
    _require_words(text, words)
    own = {"label": text.split()[-1], "edit": {}, "last": ""}
    controls = [{"name": "last word", "options": [own, *({"label": word, "edit": {}, "last": word} for word in words)]},
                {"name": "sums", "options": [
                    {"label": "up to t", "edit": {}},
                    {"label": "over all tokens", "edit": {"points": 1}, "both": True},
                    {"label": "in attention, too", "edit": {"points": 1, "ahead": True}, "both": True}]}]
    help = "Change the last word. How many of the predictions move? Then let the sums run over all tokens."
    return _figure(model, text, controls, help, "moved", name, folder, [1, 0])


def change_gates(model: Caracal, text: str, other: str, name: str = "micro",
                 folder: str = "_static/micro", lags: int | None = None) -> Figure:
    """Show what each token of a text costs, and what the model writes next, when its gates are cut or replaced.

    They are replaced by those of another text; by the mean gates of training text; or by nine numbers a channel, the
    first eight weights of the mean gate and one constant from lag 8 on, as in `experiments.nine_numbers`.

    Args:
        model: as `change_last_word`.
        text: the text, of at least two tokens.
        other: another one, at least as long as what is to be read: beyond its end its gates are 0.
        name, folder: as `continuation`.
        lags: that are kept at first: 1, 2, 4, 8 or 16, or None for all.

    Raises:
        ValueError: other lags, or as `change_last_word`.
    """
    _require_words(text)
    kept = [None, *reversed(_LAGS)]
    if lags not in kept:
        raise ValueError(f"lags={lags}; give one of {', '.join(map(str, _LAGS))}, or None for all")
    some = [{"label": f"{n}" if n > 1 else "1 (only the token itself)", "edit": {"lags": n}} for n in kept[1:]]
    controls = [{"name": "lags kept", "options": [{"label": "all", "edit": {}}, *some]},
                {"name": "gates", "options": [{"label": "as trained", "edit": {}},
                                              {"label": "another text's", "edit": {"texts": [other]}},
                                              {"label": "mean gate", "edit": {"weights": KEPT}},
                                              {"label": "nine numbers", "edit": {"weights": 8}}]}]
    help = ("Each text writes the gates of its sums. Replace them by the mean gate of training text, the same for all "
            "texts, or by nine numbers: its weights for the last 8 tokens, and one constant for all earlier ones. "
            "What changes?")
    return _figure(model, text, controls, help, "bits", name, folder, [kept.index(lags), 0], _WRITTEN)


def change_points(model: Caracal, text: str, name: str = "micro", folder: str = "_static/micro") -> Figure:
    """Show what each token of a text costs when the FFT of a trained model has too few points, so that the end wraps.

    It opens with as many points as there are tokens.

    Args:
        model, text, name, folder: as `change_gates`.

    Raises:
        ValueError: as `change_gates`.
    """
    _require_words(text)
    points = [("2 L (padded)", 2), ("1.75 L", 1.75), ("1.5 L", 1.5), ("1.25 L", 1.25), ("L (no padding)", 1)]
    controls = [{"name": "FFT points for L tokens",
                 "options": [{"label": label, "edit": {"points": of} if of < 2 else {}} for label, of in points]}]
    help = "Choose the points of the FFT. What happens to the loss, and which tokens suffer?"
    return _figure(model, text, controls, help, "bits", name, folder, [len(points) - 1])


def change_windows(model: Caracal, text: str, name: str = "micro", folder: str = "_static/micro") -> Figure:
    """Show what each token of a text costs when attention layers of a trained model are off: their output is zeros.

    Args:
        model, text, name, folder: as `change_gates`; the model has one attention layer or more.

    Raises:
        ValueError: no attention layer, or as `change_gates`.
    """
    _require_words(text)
    layers = sorted(model.config.attention_layers)
    if not layers:
        raise ValueError("this model has no attention layer; give one that has")
    cut = [*([layer] for layer in layers), *([layers] if len(layers) > 1 else [])]
    controls = [{"name": "windows off in", "options": [
        {"label": "no block", "edit": {}},
        *({"label": f"block{'s' * (len(off) > 1)} {' and '.join(map(str, off))}",
           "edit": {"off": [f"blocks.{i}.mixer" for i in off]}} for off in cut)]}]
    help = "Switch windows off, so that only Fourier modules mix tokens. Which tokens suffer?"
    return _figure(model, text, controls, help, "bits", name, folder)


def _require_words(text: str, others: Sequence[str] = ("",)) -> None:
    if len(text.split()) < 2 or not others:
        raise ValueError(f"text={text!r}, {len(others)} others; give at least two words, and another one or text")


def _figure(model: Caracal, text: str, controls: list[dict], help: str, measure: str, name: str,
            folder: str, choices: Sequence[int] | None = None, count: int = 0) -> Figure:
    manifest, _ = web_scripts(model)
    rounded, encode = in_the_page(model), model.require_tokenizer().encode
    means = dequantize_rows(quantize_rows(mean_gates_of(model))) if count else {}
    length = model.config.max_positions

    def gates(weights: int) -> list[Tensor | None]:
        stored = [means.get(f"blocks.{i}.mixer.mean_gate") for i in range(model.config.n_layers)]
        return [m if m is None else weights_and_sum(
            torch.cat([m, m[:, -1:].expand(-1, length - m.shape[1])], 1), weights, length) for m in stored]

    def reading(text: str, options: Sequence[Mapping[str, Any]]) -> Reading:
        edit = {key: value for option in options for key, value in option["edit"].items()}
        if "texts" in edit:
            edit["texts"] = [encode(one) for one in edit["texts"]]
        if "weights" in edit:
            edit["gates"] = gates(edit["weights"])
        return read(rounded, encode(text), edit, count)

    known: dict[str, Reading] = {}

    def result(*options: Mapping[str, Any]) -> dict[str, Any]:
        last = next((option["last"] for option in options if "last" in option), "")
        changed = text if not last else re.sub(r"\S+\s*$", lambda _: last, text)
        both = [option for option in options if option.get("both")]
        before = known[str(both)] = known.get(str(both)) or reading(text, both)
        after = reading(changed, options)
        return ({"pieces": pieces_of(model.tokenizer, after.ids)} | compare(before, after)
                | ({"written": [before.written, after.written]} if count else {}))

    first, second = [control["options"] for control in controls] + [[{"edit": {}}]] * (2 - len(controls))
    data = {"name": name, "text": text, "help": help, "measure": measure, "controls": controls,
            "choices": list(choices or [0] * len(controls)),
            "results": rounded_to(4, [[result(a, b) for b in second] for a in first]), "folder": folder,
            "bytes": manifest["bytes"], "digest": manifest["digest"]} | ({"count": count} if count else {})
    return Figure("change", data, None, _alt(data), state=("choices",), parts=PARTS, computed=("results",))


def _said(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Say what a change does, as the page does."""
    if data["measure"] == "moved":
        return f"{sum(share > _MOVES for share in result['moved'])} of {len(result['moved'])} predictions moved"
    before, after = (sum(bits) / len(bits) for bits in result["bits"])
    return f"mean {after:.2f} bits a token; as trained, {before:.2f}"


def _results(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the choices in words, and the result of each."""
    options = [[f"{control['name']} {option['label']}" for option in control["options"]]
               for control in data["controls"]]
    for names, result in zip(product(*options), chain(*data["results"]), strict=True):
        yield ", ".join(names), result


def _alt(data: Mapping[str, Any]) -> str:
    said = ". ".join(f"{names[0].upper()}{names[1:]}: {_said(data, result)}" for names, result in _results(data))
    return (f"{data['help']} The text is “{data['text']}”, read by {data['name']}, with a bar for each token. {said}. "
            f"A button loads the model's weights, {data['bytes'] / 1e6:.1f} MB, for a sentence of the reader's own.")
