"""The figure of chapter 6: six tokens on their way through a Fourier module, step by step."""

from collections.abc import Sequence

from torch import Tensor

from caracal_min.layers import MultiHeadFourier

from .figure import Figure

__all__ = ["fourier_shapes"]

_STEPS = ("x", "xt", "xh", "v", "h", "g", "r", "y")


def fourier_shapes(layer: MultiHeadFourier, x: Tensor, words: Sequence[str], *, step: str = "r",
                   token: int | None = None) -> Figure:
    """Show every tensor inside a layer as a table of numbers; touching one lights up what it is made of.

    The reader chooses one of eight steps: the input, the short convolution, LayerNorm, the content, the two stages of
    the gate, the mix, and the output.

    Args:
        layer: with a pre-convolution and a gate of two stages, D <= 8.
        x: its input, `[L, D]`, 3 <= L <= 7 to stay legible.
        words: the tokens in words, L of them.
        step: "x", "xt" (short convolution), "xh" (norm), "v", "h", "g", "r" or "y" at the start.
        token: the token of the number that is touched at the start; default the fourth, or the last.

    Raises:
        ValueError: a layer without pre-convolution or second stage, shapes that do not fit, an unknown step.
    """
    if layer.pre_conv is None or layer.gate_mix is None:
        raise ValueError("the layer lacks its pre-convolution or its gate's second stage; give one with both")
    if x.ndim != 2 or x.shape[1] != layer.d_model or not 3 <= len(x) <= 7 or not 2 <= layer.d_model <= 8:
        raise ValueError(f"x has shape {tuple(x.shape)} and the layer width {layer.d_model}; "
                         "give x of shape [L, width] with 3 <= L <= 7 and a width from 2 to 8")
    if len(words) != len(x):
        raise ValueError(f"{len(words)} words for {len(x)} tokens; give one word for each")
    if step not in _STEPS:
        raise ValueError(f"unknown step {step!r}; accepted: {', '.join(_STEPS)}")
    token = min(3, len(x) - 1) if token is None else token
    if not 0 <= token < len(x):
        raise ValueError(f"token {token}; give 0 to {len(x) - 1}")
    parts = {name: value.detach().cpu().double() for name, value in layer.state_dict().items()}
    x = x.detach().cpu().double()

    def map_of(name: str) -> list:
        return [parts[f"{name}.weight"].tolist(), parts[f"{name}.bias"].tolist()]

    model = {"words": list(words), "heads": layer.n_heads, "x": x.tolist(),
             "taps": parts["pre_conv.weight"][:, 0].tolist(), "norm": [*map_of("norm"), layer.norm.eps],
             "value": map_of("to_value"), "gate": map_of("to_gate"), "out": map_of("to_out"),
             "mix": [parts["gate_mix.weight"][..., 0].tolist(), parts["gate_mix.bias"].tolist()],
             "step": step, "token": token, "channel": 1}
    alt = (f"The numbers inside a Fourier module for the {len(x)} tokens {' '.join(words)}, {layer.d_model} channels "
           f"and {layer.n_heads} heads, as tables with their shapes: input, short convolution, norm, content, gate in "
           "two stages, causal convolution and output. Buttons choose the step. Touching a number lights up those it "
           f"is made of; in the convolution, r of token {token} takes the contents 0 to {token} and the gates {token} "
           "to 0 of its channel.")
    return Figure("fourier_shapes", model, None, alt, state=("step", "token", "channel"))
