"""The language model: forward pass, caches for decoding, saving and loading.

    tokens (B, L) -> embedding (B, L, D) -> n_layers blocks -> norm -> logits (B, L, vocabulary)

The output matrix is the embedding matrix (tied weights).  A block mixes tokens with Multi-Head Fourier,
or, after every `fourier_per_attention` of those, with sliding-window attention.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .caches import Cache, advance_together
from .config import CaracalConfig, find_preset, parse_config, short_repr
from .data.tokenizers import load_tokenizer
from .generation import Prompt, generate, stream
from .language_model import LanguageModel
from .locate import locate_model
from .modules import Block, MultiHeadFourier, SlidingWindowAttention
from .precision import find_device
from .text import stream_text
from .weights import CONFIG, Shapes, read_checked, read_config, repeat_layers, write_model

__all__ = ["Caracal"]


class Caracal(LanguageModel):
    """A decoder-only language model that mixes tokens by causal convolution.

    Args:
        config: shape and initialisation.

    Attributes:
        other_settings: fields of `config.json` that other tools wrote; they mean nothing here and are saved again.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    def __init__(self, config: CaracalConfig):
        super().__init__()
        self.config, self.other_settings = config, {}
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.positional_encoding == "learned"
        self.positions = nn.Embedding(config.max_positions, config.d_model) if learned else None
        self.blocks = nn.ModuleList(
            Block(
                SlidingWindowAttention(config.d_model, config.n_heads, config.window_size)
                if i in config.attention_layers
                else MultiHeadFourier(config.d_model, config.n_heads, config.pre_conv, config.gate, config.gate_length),
                config.mlp_width,
            )
            for i in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self._initialise()

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> "Caracal":
        """Build a freshly initialised model from a preset; `changes` replace fields of its configuration.

        Args:
            name: nano, micro, tiny, small, medium or large.

        Raises:
            ValueError: unknown preset or field, or a field out of range.

        Example:
            >>> model = Caracal.from_preset("nano", window_size=32)
            >>> model.num_parameters(), model.config.window_size
            (1269504, 32)
        """
        return cls(_changed(find_preset(name), changes))

    def logits(self, tokens: Tensor, caches: list[Cache] | None = None,
               lengths: Sequence[int] | None = None) -> Tensor:
        """Return logits `[B, L, vocab_size]` for `[B, L]` ids; caches from `new_caches` are continued.

        With `lengths`, only the first lengths[i] ids of row i are read; logits beyond them mean nothing.
        The caches advance together or not at all: after an error they are as they were.
        """
        if caches is None:
            return self.unembed(self.hidden(tokens))
        with advance_together(caches):
            return self.unembed(self.hidden(tokens, caches, lengths))

    def hidden(self, tokens: Tensor, caches: list[Cache] | None = None,
               lengths: Sequence[int] | None = None) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`.  Arguments as `logits`."""
        if caches is not None and [len(c.lengths) for c in caches] != [len(tokens)] * len(self.blocks):
            raise ValueError(f"{len(caches)} caches for {[len(c.lengths) for c in caches]} rows do not fit "
                             f"{len(self.blocks)} blocks and {len(tokens)} rows; make them with new_caches")
        x = self.embedding(tokens)
        if self.positions is not None:
            starts = [0] if caches is None else self.seen(caches)
            end = max(starts) + tokens.shape[1]
            if end > self.config.max_positions:
                raise ValueError(f"{end} tokens, but the learned positional encoding covers "
                                 f"{self.config.max_positions}; shorten the sequence or drop the encoding")
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + self.positions(torch.tensor(starts, device=tokens.device)[:, None] + steps)
        if caches is None:
            for block in self.blocks:
                x = block(x)
            return self.norm(x)
        with advance_together(caches):
            for block, cache in zip(self.blocks, caches, strict=True):
                # Decoding changes its shapes at every step: it never goes through a compiled block.
                x = block.forward(x, cache, lengths)
            return self.norm(x)

    def unembed(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`: the embedding matrix, used again."""
        return F.linear(hidden, self.embedding.weight)

    def new_caches(self, batch: int, capacity: int, convolution: str = "relaxed") -> list[Cache]:
        """Return one empty cache per block, for `batch` sequences of up to `capacity` tokens.

        Args:
            convolution: "relaxed" or "dot_product", as in `MultiHeadFourier.new_cache`.
        """
        dtype = self.embedding.weight.dtype
        return [block.mixer.new_cache(batch, capacity, convolution, dtype) for block in self.blocks]

    @staticmethod
    def seen(caches: list[Cache]) -> list[int]:
        """Return how many tokens each row of the caches holds."""
        return caches[0].lengths

    @overload
    def generate(self, prompt: Tensor, max_new_tokens: int, *, temperature: float = ..., top_k: int | None = ...,
                 top_p: float | None = ..., seed: int | None = ..., stop: int | Sequence[int] | None = ...,
                 convolution: str = ...) -> Tensor: ...

    @overload
    def generate(self, prompt: Sequence[Sequence[int] | Tensor], max_new_tokens: int, *, temperature: float = ...,
                 top_k: int | None = ..., top_p: float | None = ..., seed: int | None = ...,
                 stop: int | Sequence[int] | None = ..., convolution: str = ...) -> list[Tensor]: ...

    def generate(self, prompt: Prompt, max_new_tokens: int, *, temperature: float = 1.0, top_k: int | None = None,
                 top_p: float | None = None, seed: int | None = None, stop: int | Sequence[int] | None = None,
                 convolution: str = "relaxed") -> Tensor | list[Tensor]:
        """Continue a prompt by up to `max_new_tokens` tokens.

        Args:
            prompt: ids, `[B, P]`, P >= 1, on the model's device; or B sequences of ids, of any lengths >= 1.
            max_new_tokens: most tokens to draw for each row.
            temperature: logits are divided by it; 0.0 takes the most likely token (greedy).
            top_k: draw among the k most likely tokens only; None: among all.
            top_p: draw among the fewest tokens whose probabilities sum to at least p (nucleus sampling).
            seed: makes the draws reproducible on one device and version; None continues torch's own generator.
            stop: id or ids that end a sequence; a sequence that has ended repeats its stop id until all have.
            convolution: "relaxed", O(log^2 L) a token and channel on average, or its slow twin "dot_product", O(L).

        Returns:
            ids `[B, P + new]`, new <= max_new_tokens; for B sequences a list of B tensors, `[P_i + new]`.

        Raises:
            TypeError: an option that does not exist.
            ValueError: an option out of range, ids that are none of this model, or weights that give no finite logits.

        Example:
            >>> model = Caracal.from_preset("nano")
            >>> tokens = model.generate(torch.tensor([[72, 101, 108]]), max_new_tokens=5, temperature=0.8, seed=1)
            >>> tokens.shape
            torch.Size([1, 8])
            >>> [len(row) for row in model.generate([[72], [72, 101, 108]], max_new_tokens=2)]
            [3, 5]
        """
        return generate(self, prompt, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                        stop=stop, convolution=convolution)

    def stream(self, prompt: Prompt, max_new_tokens: int, *, temperature: float = 1.0, top_k: int | None = None,
               top_p: float | None = None, seed: int | None = None, stop: int | Sequence[int] | None = None,
               convolution: str = "relaxed") -> Iterator[Tensor]:
        """Yield the `[B]` ids of each new token as it is drawn.  Arguments and errors as `generate`.

        Example:
            >>> model = Caracal.from_preset("nano")
            >>> for ids in model.stream(torch.tensor([[72]]), max_new_tokens=2, temperature=0.0):
            ...     print(ids.shape)
            torch.Size([1])
            torch.Size([1])
        """
        return stream(self, prompt, max_new_tokens, temperature, top_k, top_p, seed, stop, convolution)

    def generate_text(self, prompt: str, max_new_tokens: int, **sampling: Any) -> str:
        """Return a prompt and its continuation by up to `max_new_tokens` tokens, or up to the end of its text.

        Args:
            prompt: text to continue, at least one character.
            sampling: options of `generate`; `stop` is the tokenizer's end of text unless another is given.

        Raises:
            ValueError: no tokenizer is known (set `tokenizer`), an empty prompt, or as `generate`.

        Example:
            >>> from caracal_min.data import ByteTokenizer
            >>> model = Caracal.from_preset("nano")
            >>> model.tokenizer = ByteTokenizer()
            >>> model.generate_text("The ", 8, temperature=0.8, seed=1).startswith("The ")
            True
        """
        return prompt + "".join(stream_text(self, self.require_tokenizer(), prompt, max_new_tokens, **sampling))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration, weights, tokenizer if there is one, and hashes into `folder` (`weights.write_model`).

        Raises:
            ValueError: its tensors are not those of its configuration (pruned, adapted, quantized, of several types),
                so that `from_pretrained` would refuse them; nothing is written.
            OSError: they cannot be written, in one line; what was there is unchanged.

        Example:
            >>> import tempfile
            >>> model = Caracal.from_preset("nano")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save_pretrained(folder)
            ...     again = Caracal.from_pretrained(folder)
            >>> torch.equal(again.embedding.weight, model.embedding.weight)
            True
        """
        config = {**self.other_settings, "model_type": "caracal", **asdict(self.config)}
        write_model(Path(folder), config, self.state_dict(), _shapes(self.config), self.tokenizer)

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, revision: str | None = None, device: str = "auto",
                        dtype: torch.dtype | None = None, **changes: Any) -> "Caracal":
        """Load a trained model, ready to generate: in evaluation mode, on a GPU if there is one.

        Args:
            name_or_folder: name of a model that comes with the package (`locate.shipped_models`), a folder that
                `save_pretrained` wrote, or "owner/name" of a repository on the Hugging Face hub.
            revision: branch, tag or commit of the repository on the hub.
            device: where the model goes, as `precision.find_device` says: auto takes CUDA, then MPS, then the CPU.
                Prompts given as text or as lists of ids go there by themselves; tensors have to be there already.
            dtype: of the weights, a floating-point type.  None: as stored, but at least float32; on a CPU half
                precision is slower than float32 and rounds more.
            changes: replace fields of the stored configuration that no weight depends on, as gate_length.

        Raises:
            FileNotFoundError: no such model, folder or repository.
            ValueError: the files are damaged, or of another kind of model, or do not belong together; this is found
                before anything is built.  Or an argument is none that is accepted.

        Example:
            >>> model = Caracal.from_pretrained("runs/nano/model", device="cpu")    # doctest: +SKIP
        """
        place = find_device(device)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ValueError(f"dtype={short_repr(dtype)}; give a floating-point type such as torch.bfloat16, or None")
        folder = locate_model(name_or_folder, revision)
        stored, other_settings = parse_config(read_config(folder), folder / CONFIG)
        config = _changed(stored, changes)
        matrices = {"embedding.weight": (config.vocab_size, config.d_model)}
        if config.positional_encoding == "learned":
            matrices["positions.weight"] = (config.max_positions, config.d_model)
        state = read_checked(folder, config.n_layers, matrices, lambda: _shapes(config))
        with torch.device("meta"):
            model = cls(config)
        model.load_state_dict(state, assign=True)
        model.other_settings = other_settings
        model.take_tokenizer(lambda: load_tokenizer(folder))
        if dtype is None:
            dtype = torch.promote_types(model.embedding.weight.dtype, torch.float32)
        return model.to(place, dtype).requires_grad_().eval()

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


def _changed(config: CaracalConfig, changes: dict) -> CaracalConfig:
    known = [f.name for f in fields(CaracalConfig)]
    for unknown in changes.keys() - set(known):
        raise ValueError(f"CaracalConfig has no field {unknown!r}; accepted: {', '.join(known)}")
    return replace(config, **changes)


def _shapes(config: CaracalConfig) -> Shapes:
    """Return the shape of every tensor of a model by name; only a block of each kind is built, and without memory."""
    with torch.device("meta"):
        two = Caracal(replace(config, n_layers=2, fourier_per_attention=1))
    attention = set(config.attention_layers)
    return repeat_layers({name: tuple(t.shape) for name, t in two.state_dict().items()}, "blocks.", config.n_layers,
                         lambda i: int(i in attention))
