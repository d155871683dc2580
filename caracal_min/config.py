"""The shape of a model: `CaracalConfig`, and the presets of the paper."""

import math
import reprlib
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Literal, get_args

__all__ = ["PRESETS", "CaracalConfig", "Gate", "find_preset", "parse_config", "short_repr"]

Gate = Literal["two_stage", "single_stage"]
"""Whether two linear maps with a SiLU between them make the gate, or one (the paper's SSLP)."""


@dataclass(frozen=True)
class CaracalConfig:
    """Shape and initialisation of a model.  Every row of the paper's ablations is one such configuration.

    Raises:
        ValueError: a field out of range, in one line.

    Example:
        >>> config = CaracalConfig(vocab_size=256, d_model=128, n_layers=6, n_heads=4)
        >>> config.attention_layers, config.mlp_width
        ((2, 5), 384)

    Source: Caracal, Table 1 (sizes), Tables 5 and 6 (variants and ratios), Appendix E (initialisation).
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
    """Fourier layers before each attention layer (2: attention at indices 2, 5, 8, ...); None: no attention."""
    pre_conv: bool = True
    """Whether Fourier layers start with the 3-tap causal convolution."""
    gate: Gate = "two_stage"
    """Two maps with a SiLU between them, or one linear map (the paper's SSLP)."""
    gate_length: int | None = None
    """Number of leading tokens that have a gate; bounds the decoding state.  None, as in the paper: all."""
    positional_encoding: Literal["learned"] | None = None
    """None, as in the paper, or a learned vector per position (its variant "with PE")."""
    max_positions: int = 2048
    """Longest sequence that it is trained on, from which other tools take how much text to give it at once.  A learned
    positional encoding covers no more; without one, longer sequences are not refused."""
    init_std: float = 0.02
    """Standard deviation of the initial weights; output projections get init_std / sqrt(2 n_layers)."""
    embedding_std: float = 0.02
    """Standard deviation of the initial embedding."""

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "window_size", "max_positions"):
            self._require_count(name, "")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                             "choose a width that is a multiple of the heads")
        for name, absent in (("fourier_per_attention", "no attention"), ("gate_length", "a gate at every token")):
            if getattr(self, name) is not None:
                self._require_count(name, f", or None for {absent}")
        if not isinstance(self.pre_conv, bool):
            raise ValueError(f"pre_conv={short_repr(self.pre_conv)}; give True or False")
        for name, accepted in (("gate", get_args(Gate)), ("positional_encoding", (None, "learned"))):
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name}={short_repr(getattr(self, name))}; accepted: "
                                 f"{', '.join(map(str, accepted))}")
        for name in ("init_std", "embedding_std"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ValueError(f"{name}={short_repr(value)}; give a number > 0")
            object.__setattr__(self, name, float(value))

    def _require_count(self, name: str, otherwise: str) -> None:
        """Raise ValueError unless a field is a whole number >= 1; one of numpy's becomes Python's."""
        value = getattr(self, name)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={short_repr(value)}; give a whole number >= 1{otherwise}")
        object.__setattr__(self, name, int(value))

    @property
    def mlp_width(self) -> int:
        """Hidden channels of the SwiGLU: 8 d_model / 3, rounded up to a multiple of 128 (Appendix E)."""
        return (8 * self.d_model // 3 + 127) // 128 * 128

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Indices of the attention layers: one after every `fourier_per_attention` Fourier layers."""
        k = self.fourier_per_attention
        return () if k is None else tuple(range(k, self.n_layers, k + 1))


_GPT2_VOCABULARY = 50_257

PRESETS: dict[str, CaracalConfig] = {
    # Bytes, and small enough to train on a laptop in minutes; the paper has no such size.
    "nano": CaracalConfig(256, 128, 6, 4, window_size=64),
    # 4,095 ids of GPT-2 and its end of text (tokenizer "gpt2:4096"); trained in hours on two CPU cores.
    "micro": CaracalConfig(4096, 256, 6, 4, window_size=64, max_positions=256),
    # Table 1 of the paper, with the GPT-2 vocabulary.
    "tiny": CaracalConfig(_GPT2_VOCABULARY, 512, 12, 8),
    "small": CaracalConfig(_GPT2_VOCABULARY, 768, 12, 12),
    "medium": CaracalConfig(_GPT2_VOCABULARY, 1024, 24, 16),
    "large": CaracalConfig(_GPT2_VOCABULARY, 1536, 24, 16),
}


def parse_config(stored: dict, path: Path) -> tuple[CaracalConfig, dict]:
    """Return the configuration that a `config.json` describes, and the fields that other tools have put beside it.

    Args:
        stored: what is in it.
        path: where it is, for messages.

    Raises:
        ValueError: it describes another kind of model, lacks a field, or has one out of range or nearly spelt as one
            of ours, in one line.

    Example:
        >>> stored = {"model_type": "caracal", "vocab_size": 30, "d_model": 8, "n_layers": 2, "n_heads": 2}
        >>> parse_config(stored | {"architectures": ["CaracalForCausalLM"]}, Path("config.json"))[1]
        {'architectures': ['CaracalForCausalLM']}
    """
    if stored.get("model_type") != "caracal":
        raise ValueError(f"{path} describes a model of type {short_repr(stored.get('model_type'))}; this class loads "
                         "type 'caracal'")
    required = {field.name: field.default is MISSING for field in fields(CaracalConfig)}
    if lacking := [name for name, needed in required.items() if needed and name not in stored]:
        raise ValueError(f"{path} lacks the field {lacking[0]!r} of CaracalConfig; copy or download it again")
    others = {name: value for name, value in stored.items() if name not in required and name != "model_type"}
    for name in others:
        if near := get_close_matches(name, required, 1, 0.9):
            raise ValueError(f"{path} has the field {short_repr(name)}; did you mean {near[0]!r}?")
    try:
        return CaracalConfig(**{name: value for name, value in stored.items() if name in required}), others
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def find_preset(name: str) -> CaracalConfig:
    """Return a preset by name.  Raises ValueError, in one line, if there is no such preset."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; accepted: {', '.join(PRESETS)}")
    return PRESETS[name]


def short_repr(value: object) -> str:
    """Return the repr of what was given, of at most 60 characters, for a message of one line."""
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
