"""The shape of a model: `CaracalConfig`, and the presets and variants of the paper."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from reprlib import repr as short_repr
from typing import Any, Literal, get_args

__all__ = ["PRECISIONS", "PRESETS", "VARIANTS", "CaracalConfig", "Compiled", "Gate", "Precision",
           "change_config", "find_preset", "parse_config", "require_known", "short_repr"]

Gate = Literal["two_stage", "single_stage"]
"""Two linear maps with a SiLU between them make the gate, or one map (the paper's SSLP)."""
Precision = Literal["auto", "bfloat16", "float16", "float32"]
"""Type of the matrix products; auto: the fastest that the device has units for (`precision`)."""
PRECISIONS: tuple[str, ...] = get_args(Precision)
Compiled = Literal["no", "blocks", "model"]
"""What torch.compile builds kernels for."""


def require_known(what: str, given: Any, accepted: Iterable) -> None:
    """Raise ValueError, in one line with the list, unless `given` is among what is accepted.

    Example:
        >>> require_known("preset", "huge", ("nano", "tiny"))
        Traceback (most recent call last):
        ValueError: unknown preset 'huge'; accepted: nano, tiny
    """
    # An iterator could be read only once, for the comparison but not for the message.
    accepted = [*accepted]
    if given not in accepted:
        names = ", ".join(map(str, accepted))
        raise ValueError(f"unknown {what} {given!r}; accepted: {names}")


@dataclass(frozen=True)
class CaracalConfig:
    """Shape and initialisation of a model; each row of the paper's ablations is one of these.

    Raises:
        ValueError: a size below 1, heads that do not divide the width, or an unknown gate or
            encoding.

    Example:
        >>> config = CaracalConfig(vocab_size=256, d_model=128, n_layers=6, n_heads=4)
        >>> config.attention_layers, config.mlp_width
        ((2, 5), 384)

    Source: Caracal, Table 1 (sizes), Tables 5 and 6 (variants and ratios), Appendix E
    (initialisation).
    """

    vocab_size: int
    """Number of token ids."""
    d_model: int
    """Width D of the residual stream."""
    n_layers: int
    """Number of blocks."""
    n_heads: int
    """Heads H of both kinds of mixer; d_model must be a multiple."""
    window_size: int = 256
    """Keys that a token attends to in an attention layer, itself included."""
    fourier_per_attention: int | None = 2
    """Fourier layers before each attention layer (2: attention at 2, 5, 8, ...); None: none."""
    pre_conv: bool = True
    """Whether Fourier layers start with the 3-tap causal convolution."""
    gate: Gate = "two_stage"
    """Two maps with a SiLU between them, or one linear map (the paper's SSLP)."""
    gate_length: int | None = None
    """Number of leading tokens that have a gate; bounds the decoding state.  None (paper): all."""
    positional_encoding: Literal["learned"] | None = None
    """None, as in the paper, or a learned vector per position (its variant "with PE")."""
    max_positions: int = 2048
    """Longest text that it is trained on, in tokens; learned positions cover no more."""
    init_std: float = 0.02
    """Standard deviation of initial weights; output projections get init_std / sqrt(2 n_layers)."""
    embedding_std: float = 0.02
    """Standard deviation of the initial embedding."""

    def __post_init__(self):
        # Checked here, because inside a model the same mistakes surface as errors about shapes.
        require_known("gate", self.gate, get_args(Gate))
        require_known("positional_encoding", self.positional_encoding, (None, "learned"))
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "window_size",
                     "fourier_per_attention", "gate_length", "max_positions"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name}={size}; give a whole number >= 1")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}")

    @property
    def mlp_width(self) -> int:
        """Hidden channels of the SwiGLU: 8 d_model / 3, up to a multiple of 128 (Appendix E)."""
        # Multiples of 128 fit the tiles in which GPUs multiply matrices.
        return (8 * self.d_model // 3 + 127) // 128 * 128

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Indices of attention layers: one after every `fourier_per_attention` Fourier layers."""
        k = self.fourier_per_attention
        if k is None:
            return ()
        return tuple(range(k, self.n_layers, k + 1))


_GPT2_VOCABULARY = 50_257

PRESETS: dict[str, CaracalConfig] = {
    # Bytes, and small enough to train on a laptop in minutes; the paper has no such size.
    "nano": CaracalConfig(256, 128, 6, 4, window_size=64),
    # 4,095 ids of GPT-2 and its end of text (tokenizer "gpt2:4096"); hours on two CPU cores.
    # Trained without a cut, as in the paper; the model that comes with the package has one.
    "micro": CaracalConfig(4096, 256, 6, 4, window_size=64, max_positions=256),
    # Table 1 of the paper, with the GPT-2 vocabulary.
    "tiny": CaracalConfig(_GPT2_VOCABULARY, 512, 12, 8),
    "small": CaracalConfig(_GPT2_VOCABULARY, 768, 12, 12),
    "medium": CaracalConfig(_GPT2_VOCABULARY, 1024, 24, 16),
    "large": CaracalConfig(_GPT2_VOCABULARY, 1536, 24, 16),
}

VARIANTS: dict[str, dict] = {
    # The presets have the paper's ratio of 2:1 already, so two of these rows change nothing.
    "default": {},
    "no-swa": {"fourier_per_attention": None},
    "no-swa-no-pc": {"fourier_per_attention": None, "pre_conv": False},
    "pe": {"positional_encoding": "learned"},
    "sslp": {"gate": "single_stage"},
    "5:1": {"fourier_per_attention": 5},
    "3:1": {"fourier_per_attention": 3},
    "2:1": {},
    "1:1": {"fourier_per_attention": 1},
}
"""Rows of the paper's Tables 5 and 6 as changes of a preset; ratios are Fourier to attention."""


def find_preset(name: str) -> CaracalConfig:
    """Return a preset by name; ValueError, with the list, if there is no such preset."""
    require_known("preset", name, PRESETS)
    return PRESETS[name]


def change_config(config: CaracalConfig, changes: dict[str, Any]) -> CaracalConfig:
    """Return a configuration with some fields changed; ValueError, with the list, if unknown."""
    accepted = CaracalConfig.__annotations__
    for name in changes:
        require_known("field", name, accepted)
    return replace(config, **changes)


def parse_config(stored: dict[str, Any]) -> CaracalConfig:
    """Return the configuration in the object of a `config.json`.  Fields of other tools are
    ignored.

    Raises:
        ValueError: it describes another kind of model, or has a field out of range.
        TypeError: it lacks a field that has no default.

    Example:
        >>> stored = {"vocab_size": 30, "d_model": 8, "n_layers": 2, "n_heads": 2}
        >>> parse_config(stored | {"model_type": "caracal", "torch_dtype": "float32"}).d_model
        8
    """
    require_known("model_type", stored.get("model_type"), ("caracal",))
    # transformers and the hub add fields of their own, which say nothing about the shape.
    ours = CaracalConfig.__annotations__.keys() & stored.keys()
    return CaracalConfig(**{name: stored[name] for name in ours})
