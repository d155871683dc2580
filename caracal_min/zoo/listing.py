"""Weights of the paper's listing, taken in and given back: `from_listing` and `to_listing`.

A model that was trained with the listing of Appendix E computes the same as `model.Caracal` with its weights under our
names, with one exception: the rows of its `c_attn` are stacked head by head (q, k and v of head 0, then of head 1, and
so on), those of our `to_qkv` stream by stream (q of all heads, then k, then v).  Both are `[3 D, D]`, so that weights
which are only renamed do load, and compute something else without an error.  The two functions here put the rows in
order.
"""

import re
from collections.abc import Mapping
from dataclasses import fields

import torch
from torch import Tensor

from ..config import CaracalConfig, shown
from ..model import Caracal

__all__ = ["from_listing", "to_listing"]

_OUTSIDE = {"wte": "embedding", "ln_f": "norm"}
_INSIDE = {"ln_1": "mixer_norm", "ln_2": "mlp_norm",
           "mixer.pre_conv": "mixer.pre_conv", "mixer.ln": "mixer.norm", "mixer.W_V": "mixer.to_value",
           "mixer.W_G1": "mixer.to_gate", "mixer.W_G2": "mixer.gate_mix", "mixer.linear": "mixer.to_out",
           "mixer.c_attn": "mixer.to_qkv", "mixer.c_proj": "mixer.to_out",
           "pos_ffn.fc_1": "mlp.to_value", "pos_ffn.fc_gate": "mlp.to_gate", "pos_ffn.fc_2": "mlp.to_out"}
_FREE = {"vocab_size", "d_model", "n_layers", "n_heads", "window_size", "fourier_per_attention", "max_positions",
         "init_std", "embedding_std"}
"""Fields of the configuration that the listing has too, or that do not change what a trained model computes."""


def from_listing(state: Mapping[str, Tensor], window_size: int = 256) -> Caracal:
    """Return the model that computes what the listing computes with these weights.

    Its sizes, heads and attention layers are read off the tensors.

    Args:
        state: `state_dict()` of the listing's `Caracal` or of its `CaracalForCausalLM`, one floating dtype.
        window_size: keys that an attention layer sees, which no tensor tells; the listing's default is 256.

    Returns:
        a model in evaluation mode with copies of the tensors, in their dtype.

    Raises:
        ValueError: other tensors than those of the listing; attention layers that do not stand after every k-th
            Fourier layer; an output matrix that is not the embedding.

    Example:
        >>> model = Caracal.from_preset("nano")
        >>> again = from_listing(to_listing(model), window_size=64)
        >>> all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())
        True

    Source: Caracal, Appendix E.
    """
    given = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    config = _read_sizes(given, window_size)
    given.setdefault("lm_head.weight", given["wte.weight"])
    with torch.device("meta"):
        model = Caracal(config)
    expected = {name.removeprefix("model."): tuple(t.shape) for name, t in to_listing(model).items()}
    for name in sorted(expected.keys() ^ given.keys()):
        raise ValueError(f"the weights {'lack' if name in expected else 'hold'} {shown(name)}, which the listing "
                         f"{'has' if name in expected else 'does not have'} at this size; give its state_dict()")
    for name, shape in expected.items():
        if tuple(given[name].shape) != shape:
            raise ValueError(f"{name} has shape {tuple(given[name].shape)}; the listing has {shape} at this size")
    if not torch.equal(given["lm_head.weight"], given["wte.weight"]):
        raise ValueError("lm_head.weight differs from wte.weight; the listing has one matrix for both")
    del given["lm_head.weight"]
    ours = {_our_name(name): _reordered(name, t.detach(), (config.n_heads, 3)).clone() for name, t in given.items()}
    model.load_state_dict(ours, assign=True)
    return model.requires_grad_().eval()


def to_listing(model: Caracal) -> dict[str, Tensor]:
    """Return the weights of a model under the names of the listing, for `load_state_dict` of its `Caracal`.

    Build the listing's with d_model, n_layers, n_heads, vocab_size and window_size of `model.config`, and with
    `model.config.attention_layers` as attn_layers.

    Raises:
        ValueError: a variant that the listing does not have, as one without pre-convolution.

    Source: Caracal, Appendix E.
    """
    for field in fields(CaracalConfig):
        value = getattr(model.config, field.name)
        if field.name not in _FREE and value != field.default:
            raise ValueError(f"the model has {field.name}={shown(value)}; the listing has {field.default!r} only")
    theirs = {ours: theirs for theirs, ours in _INSIDE.items() if theirs not in ("mixer.c_proj", "mixer.linear")}
    outside = {ours: theirs for theirs, ours in _OUTSIDE.items()}
    found = {}
    for name, tensor in model.state_dict().items():
        stem, kind = name.rsplit(".", 1)
        if (inside := re.fullmatch(r"blocks\.(\d+)\.(.+)", stem)) is None:
            listed = outside[stem]
        else:
            attention = int(inside[1]) in model.config.attention_layers
            projection = "mixer.c_proj" if attention else "mixer.linear"
            listed = f"h.{inside[1]}.{projection if inside[2] == 'mixer.to_out' else theirs[inside[2]]}"
        listed = f"{listed}.{kind}"
        found[f"model.{listed}"] = _reordered(listed, tensor, (3, model.config.n_heads)).clone()
    return found | {"model.lm_head.weight": found["model.wte.weight"]}


def _read_sizes(given: Mapping[str, Tensor], window_size: int) -> CaracalConfig:
    for name in ("wte.weight", "h.0.mixer.W_G2.weight"):
        if name not in given:
            raise ValueError(f"the weights lack {name!r}, which every model of the listing with a Fourier layer first "
                             "has; give its state_dict()")
    vocabulary, width = given["wte.weight"].shape
    layers = {int(number[1]) for name in given if (number := re.match(r"h\.(\d+)\.", name))}
    attention = sorted(i for i in layers if f"h.{i}.mixer.c_attn.weight" in given)
    heads = width // given["h.0.mixer.W_G2.weight"].shape[1]
    config = CaracalConfig(vocabulary, width, len(layers), heads, window_size,
                           fourier_per_attention=attention[0] if attention else None)
    if config.attention_layers != tuple(attention):
        raise ValueError(f"attention in layers {', '.join(map(str, attention))}; this package has it after every k-th "
                         f"Fourier layer, as in {', '.join(map(str, config.attention_layers))}")
    return config


def _our_name(listed: str) -> str:
    stem, kind = listed.rsplit(".", 1)
    inside = re.fullmatch(r"h\.(\d+)\.(.+)", stem)
    return f"{_OUTSIDE[stem]}.{kind}" if inside is None else f"blocks.{inside[1]}.{_INSIDE[inside[2]]}.{kind}"


def _reordered(listed: str, tensor: Tensor, order: tuple[int, int]) -> Tensor:
    """Return a tensor with the rows of q, k and v stacked the other way round: `order` is what they are stacked by."""
    if not listed.endswith("c_attn.weight"):
        return tensor
    return tensor.unflatten(0, (*order, -1)).transpose(0, 1).flatten(0, 2)
