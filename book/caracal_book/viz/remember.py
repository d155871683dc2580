"""The figure of chapter 10 in which a model writes beyond its training length, with its gates whole and cut."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from caracal_min import Caracal, CaracalConfig

from ..web_export import web_scripts
from .engine import PARTS
from .figure import Figure
from .trace import in_the_page, pieces_of, rounded_to

__all__ = ["remember"]


def remember(model: Caracal, text: str, length: int, words: int = 1024, name: str = "micro", temperature: float = 0.8,
             seed: int = 1, folder: str = "_static/micro") -> Figure:
    """Show what a model writes, token by token, what each costs by the schedule, and what must be remembered.

    The figure holds two recordings, one with the gates as trained and one with the gates cut at the training length,
    and for each token how large the results of the last Fourier layer are.  A button loads the weights, as in
    `continuation`; then the reader's computer writes, and the figure shows how long each token took.

    Args:
        model: with a tokenizer of the kind "gpt2:N", with gates that are not cut and a Fourier layer.
        text: how the recordings begin.
        length: tokens of the texts that the model was trained on.
        words: tokens of each recording, 1 or more.
        name, temperature, seed, folder: as `continuation`.

    Raises:
        ValueError: no text, a length or words below 1, gates that are cut, no Fourier layer, or no such tokenizer.
    """
    config = model.config
    fourier = [i for i in range(config.n_layers) if i not in config.attention_layers]
    if not text or words < 1 or length < 1 or config.gate_length is not None or not fourier:
        raise ValueError(f"text={text!r}, length={length}, words={words}, gate_length={config.gate_length}, "
                         f"{len(fourier)} Fourier layers; give a text, a length and words of 1 or more, and a model "
                         "with a Fourier layer whose gates are not cut")
    manifest, _ = web_scripts(model)
    whole = in_the_page(model)
    cut = Caracal(replace(config, gate_length=length)).eval().requires_grad_(False)
    cut.load_state_dict(whole.state_dict())
    own = model.tokenizer.encode(text)
    runs = [_run(one, own, fourier[-1], words, temperature, seed, model.tokenizer) for one in (whole, cut)]
    data = {"name": name, "text": text, "length": length, "runs": rounded_to(3, runs), "n": len(own), "gate": 0,
            "own": len(own), "width": config.d_model, "fourier": len(fourier), "fixed": _others(config, len(fourier)),
            "temperature": temperature, "seed": seed, "folder": folder, "bytes": manifest["bytes"],
            "digest": manifest["digest"]}
    return Figure("remember", data, None, _alt(data), state=("n", "gate"), parts=PARTS, computed=("runs",))


def _run(model: Caracal, own: list[int], layer: int, words: int, temperature: float, seed: int,
         tokenizer: Any) -> dict[str, list]:
    """Write, and return the pieces of the text and the size of each token's results, by one parallel pass."""
    ids = model.generate([own], words, temperature=temperature, seed=seed)[0].tolist()
    sizes: list[float] = []
    hook = model.blocks[layer].mixer.to_out.register_forward_pre_hook(
        lambda _, given: sizes.extend(given[0][0].square().mean(-1).sqrt().tolist()))
    model.logits(torch.tensor([ids]))
    hook.remove()
    return {"pieces": pieces_of(tokenizer, ids), "sizes": sizes}


def _others(config: CaracalConfig, fourier: int) -> list[list[int]]:
    """Return what the short convolutions and the windows remember: of how many tokens, and bytes for each, float32."""
    each = 4 * config.d_model
    return [[2, each * fourier * config.pre_conv], [config.window_size - 1, 2 * each * len(config.attention_layers)]]


def _alt(data: Mapping[str, Any]) -> str:
    whole, cut = (run["sizes"] for run in data["runs"])
    length = min(data["length"], len(whole))
    return (f"{data['name']} goes on with “{data['text']}” until there are {len(whole)} tokens, once with its gates as "
            f"trained and once with its gates cut after {data['length']}, its training length. The results of the last "
            f"Fourier layer have the size {whole[length - 1]:.1f} at token {length - 1}; at the end {whole[-1]:.1f} as "
            f"trained, and {cut[-1]:.1f} with the gates cut. As trained, the text ends “{_end(data, 0)}”; with the "
            f"gates cut, “{_end(data, 1)}”. A button loads the model's weights, {data['bytes'] / 1e6:.1f} MB.")


def _end(data: Mapping[str, Any], gate: int) -> str:
    return "".join(data["runs"][gate]["pieces"][-24:]).strip()
