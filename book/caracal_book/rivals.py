"""The models that the paper compares with, beside Caracal and its ablations: all of them by name.

`make_model` builds a Caracal, a variant of it, or a baseline of the paper from `transformers`; `load_model` reads
back what `save_pretrained` wrote.  Baselines are built from a configuration, so nothing is downloaded.  The paper gives
width, layers and heads (Table 1) and parameter counts in whole millions (Table 2).  The rest is what reproduces those
counts::

    llama    the SwiGLU of Appendix E, 8 d / 3 rounded up to a multiple of 128; every head has its own keys and values
    mamba    two Mamba blocks for each layer of Table 1, with no MLP; state size 16
    mamba2   likewise two blocks a layer; state size 16 (the default of the library is 128), one group, heads of 64
    jamba    an attention layer in every six, Mamba (state size 16) in the others; the SwiGLU of llama in all of them,
             no mixture of experts

All tie the output matrix to the embedding.  In millions, ours with 50,257 tokens and the paper's::

              llama            mamba            mamba2           jamba
    tiny       64.280   64      66.418   66      64.235   64      70.742   71
    small     123.551  124     129.118  129     124.810  125     137.668  138
    medium    359.795  360     371.493  372     357.251  357     409.235  409
    large     756.747  757     793.169  793     763.545  764     866.297  866

One entry does not round to the paper's, the medium Mamba.  With the vocabulary padded to a multiple of 8, as mamba_ssm
does by default (50,264), it has 371.500 and all sixteen agree.  The paper does not say which of Jamba's layers are
attention: two of 12 and four of 24 fit, wherever they stand; the one in eight of Jamba itself gives 411.7 and 871.8
for the two larger sizes.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caracal_min import Caracal, CaracalConfig
from caracal_min.config import VARIANTS, find_preset
from caracal_min.files import file_sha256
from caracal_min.loss import linear_cross_entropy
from caracal_min.model import BLOCK_OPTIONS, locate_model
from caracal_min.tokenizer import Tokenizer, load_tokenizer, save_tokenizer

__all__ = ["ARCHITECTURES", "BASELINES", "VARIANTS", "Baseline", "baseline_of", "load_model", "make_model",
           "weights_sha256"]

BASELINES = ("llama", "mamba", "mamba2", "jamba")
"""Names of the baselines, which are also the names of their types in `transformers`."""
ARCHITECTURES = ("caracal", *BASELINES)


def make_model(architecture: str = "caracal", preset: str = "tiny", variant: str = "default",
               vocab_size: int | None = None, context: int | None = None, **changes: Any) -> "Caracal | Baseline":
    """Build a freshly initialised model.

    Args:
        architecture: caracal, llama, mamba, mamba2 or jamba.
        preset: nano, micro, tiny, small, medium or large.
        variant: a key of `VARIANTS`, an ablation of the paper; only Caracal has them.
        vocab_size: number of token ids; None: the preset's.
        context: tokens per sequence of the training to come.  A learned positional encoding covers at least as many
            as the preset's.  None: `max_positions` of the preset.
        changes: replace fields of the preset's configuration and of the variant's.

    Raises:
        ValueError: no such model.
        ImportError: a baseline without `transformers`.

    Example:
        >>> model = make_model(preset="nano", variant="no-swa")
        >>> model.config.attention_layers
        ()

    Source: Caracal, Tables 1, 2, 5 and 6.
    """
    for what, name, known in (("architecture", architecture, ARCHITECTURES), ("variant", variant, VARIANTS)):
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; accepted: {', '.join(known)}")
    size = replace(find_preset(preset), **(VARIANTS[variant] | changes))
    longest = context or size.max_positions
    if size.positional_encoding == "learned":
        longest = max(longest, size.max_positions)
    size = replace(size, vocab_size=vocab_size or size.vocab_size, max_positions=longest)
    return Caracal(size) if architecture == "caracal" else baseline_of(architecture, size)


def load_model(name_or_folder: str | Path, gate_length: int | None = None) -> "Caracal | Baseline":
    """Load what `save_pretrained` wrote, a Caracal or a baseline, on the CPU and in evaluation mode.

    Args:
        name_or_folder: folder of a model, or of a finished training run; or what `Caracal.from_pretrained` takes.
        gate_length: cuts the gate of a Caracal, also of one that was trained without; None: as stored.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     make_model(preset="nano").save_pretrained(folder)
        ...     model = load_model(folder)
        >>> type(model).__name__, model.training
        ('Caracal', False)
    """
    folder = _folder_of(name_or_folder)
    if json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] in BASELINES:
        return Baseline.from_pretrained(folder)
    changes = {} if gate_length is None else {"gate_length": gate_length}
    return Caracal.from_pretrained(folder, device="cpu", **changes)


def weights_sha256(name_or_folder: str | Path) -> str:
    """Return the SHA-256 of the file of weights that `load_model` loads."""
    return file_sha256(_folder_of(name_or_folder) / "model.safetensors")


def baseline_of(name: str, size: CaracalConfig, **changes: Any) -> "Baseline":
    """Build a freshly initialised baseline with the vocabulary, width, layers and heads of a Caracal.

    Matrices are drawn from normal(0, 0.02); the convolutions, output projections and time steps of Mamba and Mamba-2
    as `transformers` draws them.  It starts the time-step biases of Jamba at zero, which forgets faster than Mamba.

    On CUDA the kernels of mamba_ssm and causal_conv1d are used where they are installed.  Elsewhere Mamba and Jamba
    scan token by token in Python, which is exact and slow: do not compare their speed without the kernels.

    Args:
        name: llama, mamba, mamba2 or jamba.
        changes: fields of its configuration in `transformers`, instead of those of the paper's models.

    Source: Caracal, Section 4.1, Tables 1 and 2.  Llama: Touvron et al. 2023.  Mamba: Gu and Dao 2023.  Mamba-2: Dao
    and Gu 2024.  Jamba: Lenz et al. 2025.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if not torch.cuda.is_available():  # the kernels need CUDA, so a note that they are missing helps nobody
        logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)
    # No id is special: a padding id would have an embedding of zeros that never learns.
    config = AutoConfig.for_model(
        name, vocab_size=size.vocab_size, hidden_size=size.d_model, initializer_range=0.02, tie_word_embeddings=True,
        use_cache=False, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        max_position_embeddings=size.max_positions, **(_layers(name, size) | changes))
    return Baseline(AutoModelForCausalLM.from_config(config))


class Baseline(nn.Module):
    """A causal language model of `transformers`, called, trained and measured like `Caracal`.

    Args:
        model: one with tied embeddings, whose base model returns `last_hidden_state`, `[B, L, D]`.

    Attributes:
        tokenizer: of the text that it was trained on, saved and loaded with it; None: not known.
    """

    tokenizer: Tokenizer | None = None

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self._cross_entropy = linear_cross_entropy

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Baseline":
        """Load what `save_pretrained` wrote; `transformers` reads the files, and no network is used."""
        from transformers import AutoModelForCausalLM

        loaded = cls(AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True))
        if (Path(folder) / "tokenizer.json").is_file():
            loaded.tokenizer = load_tokenizer(Path(folder))
        return loaded.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration and weights in the format of `transformers`, and the tokenizer if there is one."""
        self.model.save_pretrained(folder)
        if self.tokenizer is not None:
            save_tokenizer(self.tokenizer, Path(folder))

    @property
    def config(self):
        """The configuration, of the class that `transformers` has for this architecture."""
        return self.model.config

    @property
    def embedding(self) -> nn.Embedding:
        """The embedding, whose matrix `[vocab_size, D]` is the output matrix too."""
        return self.model.get_input_embeddings()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.weight.device

    def num_parameters(self) -> int:
        """Count the parameters, the shared embedding and output matrix once."""
        return sum(p.numel() for p in self.parameters())

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`, for ids `[B, L]`."""
        return self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state

    def unembed(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states `[..., D]`."""
        return F.linear(hidden, self.embedding.weight)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return logits `[B, L, vocab_size]` of ids `[B, L]`, and given targets the mean loss in nats per token."""
        logits = self.unembed(self.hidden(tokens))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the logits `[B, L, vocab_size]` of ids `[B, L]`."""
        return self(tokens)[0]

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return the mean loss in nats per token without holding all logits at once; a target of -100 is left out.

        Raises:
            ValueError: packed documents, which only Caracal reads apart.
        """
        if documents is not None:
            raise ValueError("baselines read a window as one text; train them with reset_documents=False")
        return self._cross_entropy(self.hidden(tokens), self.embedding.weight, targets)

    def compile_loss(self, mode: str) -> "Baseline":
        """Let torch.compile build kernels for `loss` at its first call: "no", each of the "blocks", or the "model"."""
        if mode == "model":
            self.loss = torch.compile(self.loss, dynamic=False)
        elif mode == "blocks":
            self._cross_entropy = torch.compile(linear_cross_entropy, dynamic=False)
            options = BLOCK_OPTIONS.get(self.embedding.weight.device.type)
            for module in self.modules():
                for block in module if isinstance(module, nn.ModuleList) else ():
                    block.compile(dynamic=False, options=options)
        return self

    def require_tokens(self, ids: Tensor, name: str) -> None:
        """Accept any ids; the embedding refuses those that it does not have."""


def _folder_of(name_or_folder: str | Path) -> Path:
    """Return the folder of a model: of a shipped one by name, that of a run, or itself."""
    of_run = Path(name_or_folder) / "model"
    return of_run if of_run.is_dir() else locate_model(name_or_folder)


def _layers(name: str, size: CaracalConfig) -> dict:
    """Return the fields of an architecture's configuration that say what its layers are."""
    blocks = {"num_hidden_layers": 2 * size.n_layers, "state_size": 16, "expand": 2}
    if name == "mamba":
        return blocks
    if name == "mamba2":
        return blocks | {"head_dim": 64, "num_heads": blocks["expand"] * size.d_model // 64, "n_groups": 1}
    layers = {"num_hidden_layers": size.n_layers, "num_attention_heads": size.n_heads,
              "num_key_value_heads": size.n_heads, "intermediate_size": size.mlp_width, "attn_implementation": "sdpa"}
    if name == "llama":
        return layers
    return layers | {"attn_layer_period": 6, "attn_layer_offset": 3, "num_experts": 1, "mamba_d_state": 16}
