"""The language model: forward pass, caches for decoding, saving and loading.

    tokens (B, L) -> embedding (B, L, D) -> n_layers blocks -> norm -> logits (B, L, vocabulary)

The output matrix is the embedding matrix (tied weights).  A block mixes tokens with Multi-Head Fourier,
or, after every `fourier_per_attention` of those, with sliding-window attention.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .config import PRESETS, CaracalConfig
from .files import writing_folder
from .generation import Prompt, generate, stream
from .language_model import LanguageModel
from .modules import Block, MultiHeadFourier, SlidingWindowAttention

__all__ = ["Caracal"]

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


class Caracal(LanguageModel):
    """A decoder-only language model that mixes tokens by causal convolution.

    Args:
        config: shape and initialisation.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    def __init__(self, config: CaracalConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.positional_encoding == "learned"
        self.positions = nn.Embedding(config.max_positions, config.d_model) if learned else None
        self.blocks = nn.ModuleList(
            Block(
                SlidingWindowAttention(config.d_model, config.n_heads, config.window_size)
                if i in config.attention_layers
                else MultiHeadFourier(config.d_model, config.n_heads, config.pre_conv, config.gate),
                config.mlp_width,
            )
            for i in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self._initialise()

    @classmethod
    def from_preset(cls, name: str, **changes) -> "Caracal":
        """Build a freshly initialised model from a preset; `changes` replace fields of its configuration.

        Args:
            name: nano, tiny, small, medium or large.

        Raises:
            ValueError: unknown preset or field, or a field out of range.
        """
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; accepted: {', '.join(PRESETS)}")
        known = [f.name for f in fields(CaracalConfig)]
        for unknown in changes.keys() - set(known):
            raise ValueError(f"CaracalConfig has no field {unknown!r}; accepted: {', '.join(known)}")
        return cls(replace(PRESETS[name], **changes))

    def logits(self, tokens: Tensor, caches: list | None = None, lengths: Sequence[int] | None = None) -> Tensor:
        """Return logits `[B, L, vocab_size]` for `[B, L]` ids; caches from `new_caches` are continued.

        With `lengths`, only the first lengths[i] ids of row i are read; logits beyond them mean nothing.
        """
        return self.unembed(self.hidden(tokens, caches, lengths))

    def hidden(self, tokens: Tensor, caches: list | None = None, lengths: Sequence[int] | None = None) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`.  Arguments as `logits`."""
        x = self.embedding(tokens)
        if self.positions is not None:
            starts = [0] if caches is None else self.seen(caches)
            end = max(starts) + tokens.shape[1]
            if end > self.config.max_positions:
                raise ValueError(f"{end} tokens, but the learned positional encoding covers "
                                 f"{self.config.max_positions}; shorten the sequence or drop the encoding")
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + self.positions(torch.tensor(starts, device=tokens.device)[:, None] + steps)
        for i, block in enumerate(self.blocks):
            # Decoding changes its shapes at every step: it never goes through a compiled block.
            x = block(x) if caches is None else block.forward(x, caches[i], lengths)
        return self.norm(x)

    def unembed(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`: the embedding matrix, used again."""
        return F.linear(hidden, self.embedding.weight)

    def new_caches(self, batch: int, capacity: int, convolution: str = "relaxed") -> list:
        """Return one empty cache per block, for `batch` sequences of up to `capacity` tokens.

        Args:
            convolution: "relaxed" or "dot_product", as in `MultiHeadFourier.new_cache`.
        """
        return [block.mixer.new_cache(batch, capacity, convolution) for block in self.blocks]

    @staticmethod
    def seen(caches: list) -> list[int]:
        """Return how many tokens each row of the caches holds."""
        return caches[0].lengths

    def generate(self, prompt: Prompt, max_new_tokens: int, **sampling) -> Tensor | list[Tensor]:
        """Continue `[B, P]` ids to `[B, P + new]`.  Options and errors as `generation.generate`."""
        return generate(self, prompt, max_new_tokens, **sampling)

    def stream(self, prompt: Prompt, max_new_tokens: int, **sampling) -> Iterator[Tensor]:
        """Yield the `[B]` ids of each new token as it is drawn.  Options as `generation.stream`."""
        return stream(self, prompt, max_new_tokens, **sampling)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into `folder`, which is made if absent.

        A model that is there is replaced as `files.writing_folder` says: never half of it.

        Raises:
            OSError: they cannot be written, in one line; what was there is unchanged.
        """
        config = json.dumps({"model_type": "caracal", **asdict(self.config)}, indent=2)
        with writing_folder(Path(folder), last=_CONFIG) as partial:
            save_file({k: t.contiguous() for k, t in self.state_dict().items()}, partial / _WEIGHTS, {"format": "pt"})
            (partial / _CONFIG).write_text(config + "\n")

    @classmethod
    def from_pretrained(cls, folder_or_repo: str | Path, revision: str | None = None) -> "Caracal":
        """Load a model from a folder, or from a repository of the Hugging Face hub ("owner/name").

        Args:
            revision: branch, tag or commit of the hub repository.

        Raises:
            FileNotFoundError: neither such a folder nor such a repository.
            ValueError: the configuration or the weights are corrupt, or of another kind of model.
        """
        folder = Path(folder_or_repo)
        if not folder.is_dir():
            folder = _download(str(folder_or_repo), revision)
        config = _read_config(folder / _CONFIG)
        try:
            state = load_file(folder / _WEIGHTS)
        except FileNotFoundError:
            raise FileNotFoundError(f"{folder} has no {_WEIGHTS}; give a folder that save_pretrained wrote") from None
        except SafetensorError as error:
            raise ValueError(f"{folder / _WEIGHTS} is not a readable safetensors file ({error}); "
                             "copy or download it again") from None
        with torch.device("meta"):
            model = cls(config)
        _require_state(model, state, folder / _WEIGHTS)
        model.load_state_dict(state, assign=True)
        return model.requires_grad_().eval()

    def _initialise(self) -> None:
        """Draw the weights: normal(0, init_std), output projections smaller, biases zero (Appendix E)."""
        std = self.config.init_std
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Conv1d):
                shrink = (2 * self.config.n_layers) ** -0.5 if name.endswith("to_out") else 1.0
                nn.init.normal_(module.weight, std=std * shrink)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.embedding_std)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=std)


def _download(repo: str, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=[_CONFIG, _WEIGHTS]))
    except (HFValidationError, OSError) as error:  # hub and network errors are OSErrors
        raise FileNotFoundError(f"{repo!r} is no folder here, and the hub did not give it "
                                f"({type(error).__name__}); give a folder that save_pretrained wrote, "
                                "or \"owner/name\" of a repository") from error


def _read_config(path: Path) -> CaracalConfig:
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path.parent} has no {path.name}; give a folder that save_pretrained wrote") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not readable JSON ({error}); copy or download it again") from None
    kind = stored.pop("model_type", None) if isinstance(stored, dict) else None
    if kind != "caracal":
        raise ValueError(f"{path} describes a model of type {kind!r}; this class loads type 'caracal'")
    try:
        return CaracalConfig(**stored)
    except TypeError as error:
        raise ValueError(f"{path} does not fit CaracalConfig ({error}); was it written by another version?") from None


def _require_state(model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    expected = model.state_dict()
    missing, foreign = expected.keys() - state.keys(), state.keys() - expected.keys()
    for problem, names in (("lacks", missing), ("has the foreign", foreign)):
        if names:
            raise ValueError(f"{path} {problem} tensor {sorted(names)[0]!r} ({len(names)} in all); "
                             "its weights belong to another configuration")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, the configuration says "
                             f"{tuple(expected[name].shape)}; weights and config.json do not belong together")
