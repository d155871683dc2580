"""The language model: forward pass, loss, decoding, saving and loading::

    tokens (B, L) -> embedding (B, L, D) -> n_layers blocks -> norm -> logits (B, L, vocab_size)

The output matrix is the embedding matrix (tied weights).  A block mixes tokens with Multi-Head
Fourier, or, after every `fourier_per_attention` of those, with sliding-window attention.
"""

import functools
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import generation
from .config import CaracalConfig, Compiled, change_config, find_preset, parse_config, require_known
from .decoding import Cache
from .layers import Block, MultiHeadFourier, SlidingWindowAttention
from .loss import linear_cross_entropy, token_loss
from .packing import PackedDocuments
from .precision import find_device
from .tokenizer import TOKENIZER, TOKENIZER_CONFIG, Tokenizer, load_tokenizer, save_tokenizer

__all__ = ["BLOCK_OPTIONS", "Caracal", "locate_model", "shipped_models"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PRETRAINED = Path(__file__).parent / "pretrained"
# Options of Inductor for blocks, by device type.  On a GPU a norm that is computed again costs less
# than its float32 in memory: 11 % fewer bytes in the code of a Fourier block.  Not on a CPU.
BLOCK_OPTIONS = {"cuda": {"realize_reads_threshold": 8, "realize_acc_reads_threshold": 32,
                          "realize_opcount_threshold": 100}}
_ID_TYPES = (torch.uint8, torch.uint16, torch.int16, torch.int32, torch.int64)


class Caracal(nn.Module):
    """A decoder-only language model that mixes tokens by causal convolution.

    Args:
        config: shape and initialisation.

    Attributes:
        tokenizer: that of the training text, saved and loaded with the model; None: not known.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    tokenizer: Tokenizer | None = None
    _compile_mode: Compiled = "no"
    _shift_checked = _length_warned = False  # each warning is given once

    def __init__(self, config: CaracalConfig):
        super().__init__()
        self.config = config
        width = config.d_model
        # Input embedding and, transposed, output matrix (`unembed`).
        self.embedding = _embedding(config.vocab_size, width)
        self.positions = None
        if config.positional_encoding == "learned":
            self.positions = _embedding(config.max_positions, width)
        self.blocks = nn.ModuleList()
        for i in range(config.n_layers):
            if i in config.attention_layers:
                mixer = SlidingWindowAttention(width, config.n_heads, config.window_size)
            else:
                mixer = MultiHeadFourier(width, config.n_heads, config.pre_conv, config.gate,
                                         config.gate_length)
            self.blocks.append(Block(mixer, config.mlp_width))
        self.norm = nn.LayerNorm(width)
        # On the meta device weights are loaded later, so there is nothing to draw.
        if not self.embedding.weight.is_meta:
            self._initialise()

    def _initialise(self) -> None:
        """Draw the weights (Appendix E)."""
        config = self.config
        for name, module in self.named_modules():
            if not isinstance(module, nn.Linear | nn.Conv1d):
                continue
            # The residual stream sums 2 n_layers output projections, so each is drawn smaller.
            scale = (2 * config.n_layers) ** -0.5 if name.endswith("to_out") else 1.0
            nn.init.normal_(module.weight, std=config.init_std * scale)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=config.embedding_std)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=config.init_std)

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> "Caracal":
        """Build a freshly initialised model from a preset.

        Args:
            name: nano, micro, tiny, small, medium or large.
            changes: fields of its configuration, with other values.

        Raises:
            ValueError: unknown preset or field, or a field out of range.

        Example:
            >>> model = Caracal.from_preset("nano", window_size=32)
            >>> model.num_parameters(), model.config.window_size
            (1269504, 32)
        """
        return cls(change_config(find_preset(name), changes))

    def forward(
            self, tokens: Tensor, targets: Tensor | None = None,
            keep: Literal["all", "last", "none"] = "all", caches: list[Cache] | None = None,
            lengths: Sequence[int] | None = None, documents: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Predict the next token at every position.

        Args:
            tokens: ids, `[B, L]`, of an integer type, 0 <= id < vocab_size.
            targets: ids to predict, `[B, L]`: those of tokens one position later; -100 is left out.
            keep: which logits to return: "all"; "last", which needs no targets: those of the last
                token of each row; "none", which needs targets and takes no caches (see `loss`).
            caches: state after the tokens before these, from `new_caches`; it is advanced.
            lengths: row i has only its first lengths[i] ids; its logits beyond mean nothing.
                Without caches it matters only to keep="last": a causal model needs nothing else.
            documents: integers `[B, L]` that do not fall along a row.  A new number begins a new
                document, computed as if it stood alone (`packing`), at the cost of a row as long as
                the longest document for each.  Not with caches, which hold one text a row.

        Returns:
            logits `[B, L, vocab_size]`, and the mean cross-entropy in nats per token, or None.

        Raises:
            ValueError: ids of a wrong shape, type or device, an id out of range (checked on a CPU
                only), documents whose numbers fall, or more tokens than learned positions.
        """
        if targets is not None and keep == "none":
            return None, self.loss(tokens, targets, documents)
        tokens = self.require_tokens(tokens)
        compiler_stance = nullcontext()
        if caches is not None and self._compile_mode == "blocks":
            # Shapes change at each step of decoding, and blocks would be compiled again for each.
            compiler_stance = torch.compiler.set_stance("force_eager")
        with compiler_stance:
            hidden = self.hidden(tokens, caches, lengths, documents)
        if targets is not None:
            targets = targets.long()
            self._warn_if_unshifted(tokens, targets, stacklevel=5)
            logits = self.unembed(hidden)
            return logits, token_loss(logits, targets)
        if keep == "last" and lengths is None:
            hidden = hidden[:, -1:]
        elif keep == "last":
            # Rows are padded on the right, so row i ends at lengths[i] - 1.
            last = torch.tensor(lengths, device=hidden.device) - 1
            rows = torch.arange(len(last), device=hidden.device)
            hidden = hidden[rows, last].unsqueeze(1)
        return self.unembed(hidden), None

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return the mean cross-entropy in nats per token, without ever holding all logits at once.

        It can be differentiated once; for second derivatives take the loss of `forward`, which has
        the same arguments and errors.
        """
        tokens = self.require_tokens(tokens)
        targets = targets.long()
        self._warn_if_unshifted(tokens, targets, stacklevel=3)
        if documents is not None:
            # One document per row; -100 keeps the padding out of the mean.
            packed = PackedDocuments(documents, tokens)
            tokens = packed.apart(tokens)
            targets = packed.apart(targets, padding=-100)
        compute_loss = _compiled(_loss_of_ids) if self._compile_mode == "model" else _loss_of_ids
        return compute_loss(self, tokens, targets)

    def logits(
            self, tokens: Tensor, caches: list[Cache] | None = None,
            lengths: Sequence[int] | None = None, documents: Tensor | None = None
    ) -> Tensor:
        """Return logits `[B, L, vocab_size]` for `[B, L]` ids.  Arguments as `forward`."""
        return self(tokens, caches=caches, lengths=lengths, documents=documents)[0]

    def hidden(
            self, tokens: Tensor, caches: list[Cache] | None = None,
            lengths: Sequence[int] | None = None, documents: Tensor | None = None
    ) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`.  Arguments as `forward`."""
        # Also a method of hf.CaracalModel: uses only attributes that both have.
        if documents is not None:
            # A causal model ignores padding on its right, so each document gets a row of its own.
            packed = PackedDocuments(documents, tokens)
            return packed.together(self.hidden(packed.apart(tokens), caches, lengths))
        # Positions of the first new token of each row; all caches of a model hold equally many.
        starts = [0] if caches is None else caches[0].held
        end = max(starts) + tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            if end > self.config.max_positions:
                raise ValueError(f"{end} tokens, but the learned positional encoding covers "
                                 f"{self.config.max_positions}; shorten the text")
            offsets = torch.arange(tokens.shape[1], device=tokens.device)
            start_column = torch.tensor(starts, device=tokens.device).unsqueeze(1)
            x = x + self.positions(start_column + offsets)
        elif end > self.config.max_positions and self.config.gate_length is None:
            _warn_of_length(self, end)
        if caches is None:
            for block in self.blocks:
                x = block(x)
            return self.norm(x)
        # Each mixer reads the earlier tokens from its cache and appends the new ones to it.
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, lengths)
        return self.norm(x)

    def unembed(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`."""
        return F.linear(hidden, self.embedding.weight)

    def compile_loss(self, mode: Compiled) -> "Caracal":
        """Let torch.compile build kernels at the first call of `loss`, and return the model.

        Args:
            mode: "no"; "blocks": each kind of block, and the output layer; "model": one graph, which
                may fuse across blocks but takes several times longer to build.

        Shapes are static: another shape compiles again.  Register hooks inside a block before the
        first call of `loss`, or call `torch.compiler.reset()` afterwards.  Reset it between models:
        torch.compile stops compiling a function after eight versions (`recompile_limit`).
        """
        require_known("compile", mode, get_args(Compiled))
        if mode != "no":
            # Store only the mode: a compiled function kept on the model would, after
            # copy.deepcopy, still use the original's weights.
            self._compile_mode = mode
        if mode == "blocks":
            # Blocks of one kind share a graph, so a deep model takes no longer than a shallow one.
            for block in self.blocks:
                block.compile(dynamic=False, options=BLOCK_OPTIONS.get(self.device.type))
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are, and ids have to be."""
        return self.embedding.weight.device

    def num_parameters(self) -> int:
        """Count the parameters, the shared embedding and output matrix once."""
        return sum(p.numel() for p in self.parameters())

    def new_caches(
            self, batch: int, capacity: int, convolution: str = "relaxed",
            device: torch.device | None = None
    ) -> list[Cache]:
        """Return one empty cache per block, for `batch` sequences of up to `capacity` tokens.

        Args:
            convolution: "relaxed" or "dot_product", as in `MultiHeadFourier.new_cache`.
            device: of the inputs to come; None: that of each block's weights.
        """
        # The residual stream has the dtype of the embedding; other weights may be quantised.
        dtype = self.embedding.weight.dtype
        return [block.mixer.new_cache(batch, capacity, convolution, dtype, device)
                for block in self.blocks]

    generate = generation.generate
    stream = generation.stream

    def generate_text(self, prompt: str, max_new_tokens: int, **options: Any) -> str:
        """Return a prompt and its continuation by up to `max_new_tokens` tokens.

        Unlike `generate`, it stops where the model ends its text.

        Args:
            prompt: text to continue, at least one character.
            options: of `generate`; by default `stop` is the end of text of the tokenizer.

        Raises:
            ValueError: no tokenizer is known (set `tokenizer`), or as `generate`.

        Example:
            >>> from caracal_min.data import ByteTokenizer
            >>> model = Caracal.from_preset("nano")
            >>> model.tokenizer = ByteTokenizer()
            >>> model.generate_text("The ", 8, temperature=0.8, seed=1).startswith("The ")
            True
        """
        tokenizer = self.require_tokenizer()
        pieces = generation.stream_text(self, tokenizer, prompt, max_new_tokens, **options)
        return prompt + "".join(pieces)

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer; raise ValueError, which says how to set one, if there is none."""
        if self.tokenizer is None:
            raise ValueError("the model has no tokenizer; give it one: model.tokenizer = "
                             "make_tokenizer(...) in Python, --tokenizer on the command line")
        return self.tokenizer

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration, weights, and the tokenizer if there is one, into `folder`.

        An error leaves the model that was there.  Other files stay, except SHA256SUMS,
        generation_config.json and an old tokenizer, which belong to the model that is replaced.

        Raises:
            ValueError: `from_pretrained` would refuse the tensors, since they are not those of the
                configuration (a pruned, adapted or extended model).

        Example:
            >>> import tempfile
            >>> model = Caracal.from_preset("nano")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save_pretrained(folder)
            ...     again = Caracal.from_pretrained(folder, device="cpu")
            >>> torch.equal(again.embedding.weight, model.embedding.weight)
            True
        """
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.state_dict().items()}
        self._require_loadable(tensors)
        # transformers and TRL read the class and, below, the end of text.
        config = {"model_type": "caracal", "architectures": ["CaracalForCausalLM"]}
        config |= asdict(self.config)
        if self.tokenizer is not None:
            config["eos_token_id"] = self.tokenizer.end_of_text
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as name:
            partial = Path(name)
            (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            # As bytes, since save_file makes files that only their owner may read.
            (partial / WEIGHTS).write_bytes(safetensors.torch.save(tensors, {"format": "pt"}))
            if self.tokenizer is not None:
                save_tokenizer(self.tokenizer, partial)
            # All is written, so a full disk has left the old model alone.  The weights are moved
            # first, since Windows refuses to replace a file that another program has open.
            for path in sorted(partial.iterdir(), key=lambda path: path.name != WEIGHTS):
                os.replace(path, folder / path.name)
        # These hold the end of text of the old model, and the hashes of its files.
        obsolete = ["generation_config.json", "SHA256SUMS"]
        if self.tokenizer is None:
            obsolete += [TOKENIZER, TOKENIZER_CONFIG]
        for name in obsolete:
            (folder / name).unlink(missing_ok=True)

    def _require_loadable(self, tensors: dict[str, Tensor]) -> None:
        """Raise ValueError unless a model of this configuration takes these tensors."""
        with torch.device("meta"):
            expected = Caracal(self.config).state_dict()
        shapes = {name: t.shape for name, t in tensors.items()}
        configured = {name: t.shape for name, t in expected.items()}
        if shapes != configured:
            name = min(n for n in shapes | configured if shapes.get(n) != configured.get(n))
            raise ValueError(f"the model could not be loaded again: its tensor {name!r} has shape "
                             f"{shapes.get(name)}, by its configuration {configured.get(name)}; "
                             "merge adapters and remove pruning before you save it")

    @classmethod
    def from_pretrained(
            cls, name_or_folder: str | Path, revision: str | None = None, device: str = "auto",
            dtype: torch.dtype | None = None, torch_dtype: torch.dtype | None = None,
            **changes: Any
    ) -> "Caracal":
        """Load a trained model, ready to generate: in evaluation mode, on a GPU if there is one.

        Args:
            name_or_folder: name of a model that comes with the package (`shipped_models`), a folder
                that `save_pretrained` or transformers wrote, or "owner/name" on the hub.
            revision: branch, tag or commit of the repository on the hub.
            device: of the model; auto: CUDA if there is one, else the CPU (`find_device`).
            dtype: of the weights, a floating-point type.  None: as stored, but at least float32,
                since half precision is slower on a CPU and rounds more.
            torch_dtype: another name of dtype.
            changes: fields of the stored configuration, with other values that fit the weights.

        Raises:
            FileNotFoundError: no such model, or a file is missing.
            ValueError: a configuration of another kind of model, or an unknown field.
            RuntimeError: the weights do not fit the configuration; PyTorch lists what differs.

        Example:
            >>> model = Caracal.from_pretrained("micro", device="cpu")
            >>> model.generate_text("The history of", 1, temperature=0.0)
            'The history of the'
        """
        folder = locate_model(name_or_folder, revision)
        stored = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        config = change_config(parse_config(stored), changes)
        tensors = _read_tensors(folder)
        if dtype is None:
            stored_dtype = next(iter(tensors.values())).dtype
            dtype = torch_dtype or torch.promote_types(stored_dtype, torch.float32)
        # Copied, because the tensors lie in memory as in the file, unaligned, and matrix products
        # with unaligned matrices round differently.
        target = find_device(device)
        tensors = {name: t.to(target, dtype, copy=True) for name, t in tensors.items()}
        # Built without memory or random numbers; `assign` then makes the tensors its weights.
        with torch.device("meta"):
            model = cls(config)
        model.load_state_dict(tensors, assign=True)
        if (folder / TOKENIZER).is_file():
            model.tokenizer = load_tokenizer(folder)
        return model.eval()

    def require_tokens(self, ids: Tensor, name: str = "tokens") -> Tensor:
        """Return ids `[B, L]` as int64; raise ValueError if this model cannot read them."""
        if ids.ndim != 2 or ids.shape[1] == 0 or ids.dtype not in _ID_TYPES:
            raise ValueError(f"{name} has shape {tuple(ids.shape)} and dtype {ids.dtype}; "
                             "give integer ids of shape [batch, length], length >= 1")
        device_type = self.embedding.weight.device.type
        # Offloaded weights are on "meta" until they are needed.
        if device_type not in (ids.device.type, "meta"):
            raise ValueError(f"{name} is on {ids.device} and the model on {device_type}; move one")
        ids = ids.long()
        # Reading the values would make Python wait for a GPU, and end the graph of a compiler.
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = ids[(ids < 0) | (ids >= self.config.vocab_size)]
            if len(wrong):
                raise ValueError(f"{name} holds id {wrong[0]}; this model knows 0 to "
                                 f"{self.config.vocab_size - 1}: is the tokenizer another one?")
        return ids

    def _warn_if_unshifted(self, tokens: Tensor, targets: Tensor, stacklevel: int) -> None:
        """Warn once if targets equal tokens: the model would only learn to copy."""
        if self._shift_checked or tokens.is_meta or torch.compiler.is_compiling():
            return
        self._shift_checked = True
        if torch.equal(tokens, targets):
            warnings.warn("targets equal tokens, so the model learns to copy; give the tokens that "
                          "come next: model(text[:, :-1], text[:, 1:])", stacklevel=stacklevel)


def shipped_models() -> tuple[str, ...]:
    """Return the names of the trained models that come with the package."""
    return tuple(sorted(path.parent.name for path in PRETRAINED.glob(f"*/{CONFIG}")))


def locate_model(name_or_folder: str | Path, revision: str | None = None) -> Path:
    """Return the folder that has the files of a model, after a download if it is on the hub.

    The name of a shipped model comes first; give a folder of the same name as a `Path`.

    Args:
        name_or_folder: one of `shipped_models()`, a folder, or "owner/name" on the hub.
        revision: branch, tag or commit of the repository on the hub.

    Raises:
        FileNotFoundError: there is none, in one line that lists the shipped models.
    """
    shipped = shipped_models()
    if isinstance(name_or_folder, str) and name_or_folder in shipped:
        return PRETRAINED / name_or_folder
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    # Only "owner/name" can be on the hub: do not ask the network for a mistyped folder.
    if isinstance(name_or_folder, Path) or name_or_folder.count("/") != 1:
        raise FileNotFoundError(f"there is no model {str(name_or_folder)!r}; give the name of a "
                                f"shipped one ({', '.join(shipped)}), a folder, or \"owner/name\" "
                                "on the hub")
    from huggingface_hub import snapshot_download  # as slow to import as a model is to load

    wanted = [CONFIG, f"{WEIGHTS}*", "model-*.safetensors", "tokenizer*.json"]
    return Path(snapshot_download(name_or_folder, revision=revision, allow_patterns=wanted))


def _embedding(rows: int, width: int) -> nn.Embedding:
    """Return an nn.Embedding whose weights are not drawn if they are on the meta device."""
    # Drawing there would import the compiler, which takes 2 s.
    weight = torch.empty(rows, width)
    if weight.is_meta:
        return nn.Embedding.from_pretrained(weight, freeze=False)
    return nn.Embedding(rows, width)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by name, from one file or from those that an index lists."""
    # transformers splits large models over several files.
    files = [WEIGHTS]
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file() and not (folder / WEIGHTS).is_file():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    tensors = {}
    for name in files:
        tensors |= safetensors.torch.load_file(folder / name)
    return tensors


def _loss_of_ids(model: Caracal, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of a model: the function that mode "model" compiles as one graph."""
    # In mode "blocks" the output layer is a graph of its own.
    cross_entropy = linear_cross_entropy
    if model._compile_mode == "blocks":
        cross_entropy = _compiled(linear_cross_entropy)
    return cross_entropy(model.hidden(tokens), model.embedding.weight, targets)


@functools.cache
def _compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=False)


def _warn_of_length(model: nn.Module, tokens: int) -> None:
    """Warn once that the sums of Fourier layers grow beyond the lengths seen in training."""
    # The models of `hf` lack the attribute until it is set.
    if torch.compiler.is_compiling() or getattr(model, "_length_warned", False):
        return
    model._length_warned = True
    trained_length = model.config.max_positions
    warnings.warn(f"{tokens} tokens, and the model was trained on texts of {trained_length}: "
                  "beyond, it predicts worse unless its gate is cut, as by "
                  f"gate_length={trained_length} in from_pretrained or the configuration",
                  stacklevel=6)  # the call model(tokens), above two frames of nn.Module
