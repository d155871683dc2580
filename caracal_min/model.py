"""The language model: forward pass, caches for decoding, saving and loading::

    tokens (B, L) -> embedding (B, L, D) -> n_layers blocks -> norm -> logits (B, L, vocabulary)

The output matrix is the embedding matrix (tied weights).  A block mixes tokens with Multi-Head Fourier,
or, after every `fourier_per_attention` of those, with sliding-window attention.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import generation
from .caches import Cache, advance_together
from .config import CaracalConfig, find_preset, parse_config, short_repr
from .data.tokenizers import load_tokenizer
from .files import reading_folder
from .language_model import Kept, LanguageModel
from .locate import locate_model
from .modules import Block, MultiHeadFourier, SlidingWindowAttention
from .precision import find_device
from .projections import TiedEmbedding
from .text import stream_text
from .weights import CONFIG, OF_THE_WEIGHTS, SUMS, Shapes, read_checked, read_config, repeat_layers, write_model

__all__ = ["Caracal"]


class Caracal(LanguageModel):
    """A decoder-only language model that mixes tokens by causal convolution.

    Args:
        config: shape and initialisation.

    Attributes:
        embedding: the matrix at both ends, called at both, so that hooks may bring its weight.  A forward hook gets
            ids, whose type is integer, at the look-up, and hidden states at the output: return None for those to
            change the look-up alone, as noise on it should.  `hf.CaracalForCausalLM` has a module for each end.
        other_settings: fields of `config.json` that other tools wrote; they mean nothing here and are saved again,
            but for those that describe the weights as they were saved, such as their type.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    def __init__(self, config: CaracalConfig):
        super().__init__()
        self.config, self.other_settings = config, {}
        self.embedding = TiedEmbedding(config.vocab_size, config.d_model)
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

    def forward(self, tokens: Tensor, targets: Tensor | None = None, keep: Kept = "all",
                caches: list[Cache] | None = None, lengths: Sequence[int] | None = None,
                documents: Tensor | None = None) -> tuple:
        """Predict the next token at every position.  Arguments, results and errors as `LanguageModel.forward`, and:

        Args:
            caches: what the tokens before these left, from `new_caches`; they are continued, and all advance or none.
                Targets and documents are not taken then.
            lengths: with caches, row i has only its first lengths[i] ids; logits beyond them mean nothing.
        """
        if caches is None:
            if lengths is not None:
                raise ValueError("lengths without caches; leave them out, since padding on the right changes nothing "
                                 "before it, and take the logits at lengths[i] - 1 of row i")
            return super().forward(tokens, targets, keep, documents=documents)
        if targets is not None or documents is not None:
            raise ValueError(f"{'targets' if documents is None else 'documents'} with caches; give the whole text, "
                             "without caches")
        with advance_together(caches):
            hidden = self.hidden(tokens, caches, lengths)
            if keep == "last":
                hidden = hidden[:, -1:] if lengths is None else torch.stack(
                    [row[n - 1:n] for row, n in zip(hidden, lengths, strict=True)])
            return self.unembed(hidden), None

    def logits(self, tokens: Tensor, caches: list[Cache] | None = None, lengths: Sequence[int] | None = None,
               documents: Tensor | None = None) -> Tensor:
        """Return logits `[B, L, vocab_size]` for `[B, L]` ids.  Arguments as `forward`."""
        return self(tokens, caches=caches, lengths=lengths, documents=documents)[0]

    def hidden(self, tokens: Tensor, caches: list[Cache] | None = None,
               lengths: Sequence[int] | None = None) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`.  Arguments as `forward`."""
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
        # The shapes of decoding change at every step: compiled blocks, and their hooks, run as they were before that.
        compiled = any(block._compiled_call_impl is not None for block in self.blocks)
        with advance_together(caches), torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache, lengths)
            return self.norm(x)

    def unembed(self, hidden: Tensor, product: Callable[[Tensor, Tensor], Tensor] = F.linear) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`.  Arguments as `LanguageModel.unembed`."""
        try:
            return self.embedding(hidden, product)
        except RuntimeError as error:
            if isinstance(self.embedding, TiedEmbedding):
                raise
            raise RuntimeError(f"the embedding is the output matrix too, and {type(self.embedding).__name__} in its "
                               "place takes ids alone: adapt other layers, or train it whole (PEFT: modules_to_save)"
                               ) from error

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a text, which a learned positional encoding bounds; None: any number."""
        return None if self.positions is None else self.config.max_positions

    def new_caches(self, batch: int, capacity: int, convolution: str = "relaxed",
                   device: torch.device | None = None) -> list[Cache]:
        """Return one empty cache per block, for `batch` sequences of up to `capacity` tokens.

        Args:
            convolution: "relaxed" or "dot_product", as in `MultiHeadFourier.new_cache`.
            device: of the inputs to come, for blocks whose weights come when they are called; the others know it.
        """
        dtype, places = self.embedding.weight.dtype, [next(block.parameters()).device for block in self.blocks]
        return [block.mixer.new_cache(batch, capacity, convolution, dtype, device if place.type == "meta" else place)
                for block, place in zip(self.blocks, places, strict=True)]

    @staticmethod
    def seen(caches: list[Cache]) -> list[int]:
        """Return how many tokens each row of the caches holds."""
        return caches[0].lengths

    generate = generation.generate
    stream = generation.stream

    def generate_text(self, prompt: str, max_new_tokens: int, **sampling: Unpack[generation.SamplingOptions]) -> str:
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

        A model without tokenizer has, when it is loaded again, one that lay in the folder; a warning says so.

        Raises:
            ValueError: its tensors are not those of its configuration (pruned, adapted, quantized, of several types),
                so that `from_pretrained` would refuse them, or the tokenizer has more ids; nothing is written.
            OSError: they cannot be written, in one line that says what is there now.

        Example:
            >>> import tempfile
            >>> model = Caracal.from_preset("nano")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save_pretrained(folder)
            ...     again = Caracal.from_pretrained(folder)
            >>> torch.equal(again.embedding.weight, model.embedding.weight)
            True
        """
        others = {name: value for name, value in self.other_settings.items() if name not in OF_THE_WEIGHTS}
        config = {**others, "model_type": "caracal", **asdict(self.config)}
        tokenizer = None if self.tokenizer is None else self.require_tokenizer()
        write_model(Path(folder), config, self.state_dict(), _shapes(self.config), tokenizer)

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
                before anything is built; or they were saved anew meanwhile, or an argument is none that is accepted.

        Example:
            >>> model = Caracal.from_pretrained("runs/nano/model", device="cpu")    # doctest: +SKIP
        """
        place = find_device(device)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ValueError(f"dtype={short_repr(dtype)}; give a floating-point type such as torch.bfloat16, or None")
        folder = locate_model(name_or_folder, revision)
        with reading_folder(folder, last=CONFIG, hashes=SUMS):
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
