"""The contenders of the race: models of one depth and one parameter budget that differ in how they mix tokens.

The budget is the number of parameters of Caracal at that width and depth.  Each of the others has the same depth, and
the same width, heads, vocabulary and tied embedding; what gives is the hidden width of its MLP, in steps of 8.  Mamba
and Mamba-2 have no MLP but two blocks for each layer, so there the width of the model gives, in steps of 4.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from caracal_min.config import CaracalConfig
from caracal_min.layers import SwiGLU
from caracal_min.model import Caracal

from ..rivals import VARIANTS, Baseline, baseline_of
from .mixers import make_mixer

__all__ = ["CONTENDERS", "TOLERANCE", "Contender", "MixedModel", "fitted"]

TOLERANCE = 0.03
"""Largest deviation from the budget, as a fraction of it."""


class MixedModel(Caracal):
    """A Caracal with an MLP of any width, and with another mixer in all its blocks if one is given.

    It is trained and measured like a Caracal, and neither decodes nor is saved.

    Args:
        config: shape and initialisation.
        hidden: channels of the SwiGLU.
        mixer: makes what takes the place of each mixer; its linear maps and short convolutions are initialised as
            those of Caracal.
    """

    def __init__(self, config: CaracalConfig, hidden: int, mixer: Callable[[], nn.Module] | None = None):
        super().__init__(config)
        for block in self.blocks:
            block.mlp = SwiGLU(config.d_model, hidden)
            if mixer is not None:
                block.mixer = mixer()
        draw_weights(self)


def draw_weights(model: Caracal) -> None:
    """Draw all weights anew as Appendix E does: normal(0, init_std), smaller in output projections; biases zero."""
    size = model.config
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            shrink = (2 * size.n_layers) ** -0.5 if name.endswith("to_out") else 1.0
            nn.init.normal_(module.weight, std=size.init_std * shrink)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(model.embedding.weight, std=size.embedding_std)
    if model.positions is not None:
        nn.init.normal_(model.positions.weight, std=size.init_std)


@dataclass(frozen=True)
class Contender:
    """A way to mix tokens."""

    what: str
    """One line on it."""
    build: Callable[[CaracalConfig, int, int], nn.Module]
    """Makes the model from a size, the tokens per sequence, and the number that gives."""
    gives: str = "mlp"
    """What the budget decides: "mlp", the hidden width of the MLP, or "width", that of the model."""


def _caracal(size: CaracalConfig, context: int, hidden: int, **changes) -> nn.Module:
    return MixedModel(replace(size, **changes), hidden)


def _mixed(size: CaracalConfig, context: int, hidden: int, mixer: str) -> nn.Module:
    return MixedModel(size, hidden, partial(make_mixer, mixer, size.d_model, size.n_heads, context, size.window_size))


def _attending(size: CaracalConfig, context: int, hidden: int, name: str) -> nn.Module:
    return baseline_of(name, size, intermediate_size=hidden)


def _mamba(size: CaracalConfig, context: int, width: int) -> nn.Module:
    return baseline_of("mamba", replace(size, d_model=width, n_heads=1))


def _mamba2(size: CaracalConfig, context: int, width: int) -> nn.Module:
    eight_heads = dict(num_heads=8, head_dim=width // 4, chunk_size=16)
    return baseline_of("mamba2", replace(size, d_model=width, n_heads=1), **eight_heads)


def _gated_deltanet(size: CaracalConfig, context: int, hidden: int) -> nn.Module:
    """Qwen3-Next with neither attention layers nor experts: Gated DeltaNet in every layer, and an MLP."""
    import transformers

    head = size.d_model // size.n_heads
    config = transformers.AutoConfig.for_model(
        "qwen3_next", vocab_size=size.vocab_size, hidden_size=size.d_model, intermediate_size=hidden,
        num_hidden_layers=size.n_layers, layer_types=["linear_attention"] * size.n_layers, num_experts=0,
        num_attention_heads=size.n_heads, num_key_value_heads=size.n_heads, head_dim=head,
        linear_num_key_heads=size.n_heads, linear_num_value_heads=size.n_heads, linear_key_head_dim=head,
        linear_value_head_dim=head, initializer_range=0.02, tie_word_embeddings=True, use_cache=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    return Baseline(transformers.AutoModelForCausalLM.from_config(config))


REFERENCE = "caracal"

CONTENDERS: dict[str, Contender] = {
    REFERENCE: Contender("two Fourier layers, then window attention", _caracal),
    "no-swa": Contender("Fourier layers only", partial(_caracal, **VARIANTS["no-swa"])),
    "no-swa-no-pc": Contender("Fourier layers only, without their pre-convolution",
                              partial(_caracal, **VARIANTS["no-swa-no-pc"])),
    "local": Contender("Caracal with a gate at the first token alone: no long convolution",
                       partial(_caracal, gate_length=1)),
    "window": Contender("window attention only", partial(_mixed, mixer="window")),
    "llama": Contender("full attention with rotary positions", partial(_attending, name="llama")),
    "static": Contender("a Fourier layer whose gate is a learned kernel", partial(_mixed, mixer="static")),
    "hyena": Contender("a learned kernel between two products, as in Hyena", partial(_mixed, mixer="gated-static")),
    "gated-deltanet": Contender("Gated DeltaNet in every layer", _gated_deltanet),
    "mamba2": Contender("Mamba-2, two blocks for each layer", _mamba2, gives="width"),
    "mamba": Contender("Mamba, two blocks for each layer", _mamba, gives="width"),
    "jamba": Contender("Mamba, and full attention in one layer of six", partial(_attending, name="jamba")),
}
"""All contenders by name; the first is the one that sets the budget."""


def fitted(name: str, size: CaracalConfig, context: int) -> tuple[int, int]:
    """Find the size at which a contender is nearest to the budget.

    Args:
        name: a key of `CONTENDERS`.
        size: width, layers, heads and vocabulary; Caracal has the MLP of `config.mlp_width` there.
        context: tokens per sequence.

    Returns:
        the number that `Contender.build` takes, and the parameters that the model then has.

    Raises:
        ValueError: it does not come within `TOLERANCE` of the budget.
        ImportError: it needs a package that is not installed.
    """
    budget = _parameters(REFERENCE, size, context, size.mlp_width)
    if name == REFERENCE:
        return size.mlp_width, budget
    step = 4 if CONTENDERS[name].gives == "width" else 8
    low, high = 1, 4 * size.d_model  # in steps; the count grows with the number
    while high - low > 1:
        middle = (low + high) // 2
        if _parameters(name, size, context, middle * step) <= budget:
            low = middle
        else:
            high = middle
    counts = {n * step: _parameters(name, size, context, n * step) for n in (low, high)}
    number = min(counts, key=lambda n: abs(counts[n] - budget))
    if abs(counts[number] - budget) > TOLERANCE * budget:
        raise ValueError(f"{name} has {counts[number]:,} parameters where Caracal has {budget:,}, which is not within "
                         f"{TOLERANCE:.0%}; give a larger width, or more layers")
    return number, counts[number]


def _parameters(name: str, size: CaracalConfig, context: int, number: int) -> int:
    with torch.device("meta"):
        return CONTENDERS[name].build(size, context, number).num_parameters()
