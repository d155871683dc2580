"""What every language model here shares, Caracal and the baselines alike: how it is called, and its loss."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .choices import Compiled, require_compiled
from .data.tokenizers import Tokenizer
from .loss import linear_cross_entropy, token_loss
from .packing import PackedDocuments
from .spectral import transformed

__all__ = ["Kept", "LanguageModel", "evaluating"]

Kept = Literal["all", "last", "none"]
"""Positions whose logits a call returns."""
_Model = TypeVar("_Model", bound="LanguageModel")


class LanguageModel(nn.Module):
    """A causal language model with tied embeddings, called as `model(tokens, targets)`.

    Attributes:
        tokenizer: of the text that it was trained on, saved and loaded with it; None where it is not known.

    A subclass has `config.vocab_size`, the module `embedding`, `hidden(tokens)` and `save_pretrained(folder)`; its
    repeated blocks are in a ModuleList.
    """

    embedding: nn.Embedding
    tokenizer: Tokenizer | None = None
    _why_no_tokenizer = "none was given"

    if TYPE_CHECKING:  # of `forward`; nn.Module promises nothing about a call

        @overload
        def __call__(self, tokens: Tensor, targets: None = None, **how: Any) -> tuple[Tensor, None]: ...

        @overload
        def __call__(self, tokens: Tensor, targets: Tensor, **how: Any) -> tuple[Tensor, Tensor]: ...

        def __call__(self, tokens: Tensor, targets: Tensor | None = None, **how: Any) -> tuple: ...

    _compiled: Compiled = "no"  # the mode; a compiled function would keep this model's weights alive in every copy
    _watchful = True  # for targets that equal tokens

    def __setstate__(self, state: dict) -> None:
        """Take the state of a copy or of a pickle, in which PyTorch leaves out what was compiled."""
        super().__setstate__(state)
        self.compile_for(self._compiled)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return what the output matrix is applied to, `[B, L, D]`, for `[B, L]` ids."""
        raise NotImplementedError

    def unembed(self, hidden: Tensor, product: Callable[[Tensor, Tensor], Tensor] = F.linear) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`: the embedding matrix, used again.

        Args:
            product: what is applied to the hidden states and the matrix `[vocab_size, D]`, in place of `F.linear`.
        """
        return product(hidden, self.embedding.weight)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model into a folder, from which `zoo.load_model` reads it."""
        raise NotImplementedError

    def hidden_of(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return what `hidden` does, `[B, L, D]`; with documents, each of them read alone.  Arguments as `forward`."""
        if documents is None:
            return self.hidden(tokens)
        packed = PackedDocuments(documents, tokens)
        return packed.together(self.hidden(packed.apart(tokens)))

    def logits(self, tokens: Tensor, *, documents: Tensor | None = None) -> Tensor:
        """Return logits `[B, L, vocab_size]` for `[B, L]` ids.  Arguments and errors as `forward`."""
        return self(tokens, documents=documents)[0]

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return what `forward` returns as its loss, and never hold all logits: for training.

        It can be differentiated once; for second derivatives take `forward`'s within `torch.nn.attention.sdpa_kernel(
        SDPBackend.MATH)`, since the other kernels of attention have none.  Arguments and errors as `forward`.
        """
        return self(tokens, targets, keep="none", documents=documents)[1]

    def _loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        cross_entropy = _compiled(linear_cross_entropy) if self._compiled == "blocks" else linear_cross_entropy
        return self.unembed(self.hidden(tokens), functools.partial(cross_entropy, targets=targets))

    def compile_for(self: _Model, what: Compiled) -> _Model:
        """Let torch.compile build kernels for `loss`, at its first call, and return the model.

        Args:
            what: "blocks" compiles each kind of block once, and the output layer: short to build; "model" compiles
                one graph, which may fuse across blocks and takes several times longer to build; "no" does nothing.

        A copy of the model, or one that is read from a pickle, is compiled for the same and has its own weights.
        The shapes of the first call count: others are compiled anew.  Hooks of modules inside a block come first:
        those that are added later are left out, until `torch.compiler.reset()`.  Forget earlier models with
        `torch.compiler.reset()`: the compiler keeps eight versions of a function and then falls back without it.
        """
        require_compiled(what)
        if what != "no":
            self._compiled = what
        if what == "blocks":
            for blocks in (m for m in self.modules() if isinstance(m, nn.ModuleList)):
                for block in blocks:
                    block.compile(dynamic=False)
        return self

    def forward(self, tokens: Tensor, targets: Tensor | None = None, keep: Kept = "all", *,
                documents: Tensor | None = None) -> tuple:
        """Predict the next token at every position.

        Args:
            tokens: ids, `[B, L]`, integer, 0 <= id < vocab_size.
            targets: ids to predict, `[B, L]`: those of tokens one place further on; -100 is left out of the mean.
            keep: which logits are returned: "all", those of the "last" token of each row, or, with targets, "none":
                then they are never held all at once.
            documents: integers `[B, L]`, one for each token, that do not fall along a row: a new number begins a new
                document, and each document gives what it gives alone (`packing`).  It costs as much as so many rows
                of the length of the longest.

        Returns:
            logits `[B, L, vocab_size]`, and the mean cross-entropy in nats per token (None without targets).

        Raises:
            TypeError, ValueError: no tensor, a wrong shape, dtype or device, an id out of range (the range is checked
                on a CPU only), or documents that fall along a row.
        """
        if targets is None:
            self.require_tokens(tokens, "tokens")
            hidden = self.hidden_of(tokens, documents)
            return self.unembed(hidden if keep == "all" else hidden[:, -1:]), None
        self._require_pair(tokens, targets)
        if keep == "none":
            loss = LanguageModel._loss
            if documents is not None:
                packed = PackedDocuments(documents, tokens)
                tokens, targets = packed.apart(tokens), packed.apart(targets, padding=-100)
            return None, (_compiled(loss) if self._compiled == "model" else loss)(self, tokens, targets)
        logits = self.unembed(self.hidden_of(tokens, documents))
        return logits if keep == "all" else logits[:, -1:], token_loss(logits, targets)

    @property
    def device(self) -> torch.device:
        """Where ids are read: the device of the weights, or the CPU if hooks bring these when a layer is called."""
        place = self.embedding.weight.device
        return torch.device("cpu") if place.type == "meta" else place

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer; ValueError, in one line that says how to give one, where there is none."""
        if self.tokenizer is None:
            raise ValueError(f"the model has no tokenizer ({self._why_no_tokenizer}); give one: model.tokenizer = "
                             "make_tokenizer(...) of caracal_min.data in Python, --tokenizer on the command line")
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ValueError(f"{self._too_many(self.tokenizer)}; give the tokenizer that the model was trained with")
        return self.tokenizer

    def take_tokenizer(self, read: Callable[[], Tokenizer]) -> None:
        """Take the tokenizer that `read` returns; where it raises, `require_tokenizer` says why there is none."""
        self.tokenizer = None
        try:
            found = read()
        except (ImportError, OSError, ValueError, RecursionError) as error:
            self._why_no_tokenizer = str(error)
            return
        if found.vocab_size <= self.config.vocab_size:
            self.tokenizer = found
        else:
            self._why_no_tokenizer = self._too_many(found)

    def _too_many(self, tokenizer: Tokenizer) -> str:
        return f"{tokenizer.name} has {tokenizer.vocab_size:,} ids, the model {self.config.vocab_size:,}"

    def num_parameters(self) -> int:
        """Count the parameters, the shared embedding and output matrix once."""
        return sum(p.numel() for p in self.parameters())

    def _require_pair(self, tokens: Tensor, targets: Tensor) -> None:
        self.require_tokens(tokens, "tokens")
        self.require_tokens(targets, "targets", ignored=-100)
        if targets.shape != tokens.shape:
            raise ValueError(f"targets have shape {tuple(targets.shape)}, tokens {tuple(tokens.shape)}; "
                             "give one target per token")
        if self._watchful and tokens.device.type != "meta" and not torch.compiler.is_compiling() and not transformed():
            # What follows a token in a text of equal tokens is that token.
            copied = torch.equal(targets, tokens) and bool((tokens[:, 1:] != tokens[:, :-1]).any())
            self._watchful = not copied and tokens.device.type == "cpu"  # on a GPU to look is to wait: once
            if copied:
                warnings.warn("targets equal tokens everywhere, so the model learns to copy; give the tokens that come "
                              "next: model(text[:, :-1], text[:, 1:])", stacklevel=2)

    def require_tokens(self, ids: Tensor, name: str, ignored: int | None = None) -> None:
        """Raise TypeError or ValueError, in one line, unless these are ids `[B, L]` where the model is."""
        if not isinstance(ids, Tensor):
            raise TypeError(f"{name} is a {type(ids).__name__}; give a torch.Tensor of ids, [batch, length]")
        if ids.ndim != 2 or ids.shape[1] == 0 or ids.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"{name} has shape {tuple(ids.shape)} and dtype {ids.dtype}; "
                             "give integer ids of shape [batch, length], length >= 1")
        place = self.embedding.weight.device
        if ids.device != place and place.type != "meta":  # weights on meta come when a layer is called
            raise ValueError(f"{name} is on {ids.device} and the model on {place}; give {name}.to({str(place)!r})")
        if ids.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed():
            checked = ids if ignored is None else ids[ids != ignored]
            bad = checked[(checked < 0) | (checked >= self.config.vocab_size)]
            if bad.numel():
                raise ValueError(f"{name} holds id {bad[0].item()}; this model knows 0 to "
                                 f"{self.config.vocab_size - 1}: was the text encoded with another tokenizer?")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode for a while; each of its modules then gets back the mode that it had."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@functools.cache
def _compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=False)
