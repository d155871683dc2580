# goes when training and commands no longer import it
"""The models that the paper compares with: Llama, Mamba, Mamba-2 and Jamba, from `transformers`, at its sizes.

Built from a configuration, so nothing is downloaded; called like `model.Caracal`.  The paper gives width, layers and
heads (Table 1) and parameter counts in whole millions (Table 2).  The rest is what reproduces those counts::

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
from torch import Tensor, nn

from ..choices import BASELINES
from ..config import CaracalConfig, short_repr
from ..data.tokenizers import load_tokenizer
from ..extras import missing
from ..files import reading_folder
from ..language_model import LanguageModel
from ..weights import (
    CONFIG,
    SUMS,
    Shapes,
    read_config,
    read_shapes,
    read_weights,
    repeat_layers,
    require_shapes,
    require_sizes,
    write_model,
)

__all__ = ["BASELINES", "Baseline", "baseline_of"]

# Fields of a stored configuration that say where it comes from, and what ends a text, not what the model is.
_WITHOUT_MEANING = {"_name_or_path", "architectures", "auto_map", "dtype", "eos_token_id", "torch_dtype",
                    "transformers_version"}


def baseline_of(name: str, size: CaracalConfig, **changes: Any) -> "Baseline":
    """Build a freshly initialised baseline of the vocabulary, width, layers and heads of a Caracal.

    Matrices are drawn from normal(0, 0.02); the convolutions, output projections and time steps of Mamba and Mamba-2
    as `transformers` draws them.  It starts the time-step biases of Jamba at zero, which forgets faster than Mamba.

    On CUDA the kernels of mamba_ssm and causal_conv1d are used where they are installed.  Elsewhere Mamba and Jamba
    scan token by token in Python, which is exact and slow: do not compare their speed without the kernels.

    Args:
        name: llama, mamba, mamba2 or jamba.
        changes: fields of its configuration in `transformers`, instead of those of the paper's models.

    Raises:
        ImportError: `transformers` is not installed.

    Source: Caracal, Section 4.1, Tables 1 and 2.  Llama: Touvron et al. 2023.  Mamba: Gu and Dao 2023.  Mamba-2: Dao
    and Gu 2024.  Jamba: Lenz et al. 2025.
    """
    return Baseline(_transformers().AutoModelForCausalLM.from_config(_configuration(name, size, **changes)))


class Baseline(LanguageModel):
    """A causal language model of `transformers`, called like `Caracal`.

    Args:
        model: one with tied embeddings, whose base model returns `last_hidden_state`, `[B, L, D]`.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the normed output of the last block, `[B, L, D]`."""
        return self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into `folder`, as `weights.write_model` says.

        `transformers` reads them too.

        Raises:
            ValueError: its tensors are not those of its configuration, so that it could not be loaded again.
            OSError: they cannot be written, in one line that says what is there now.
        """
        with torch.device("meta"):
            expected = _shapes(_transformers().AutoModelForCausalLM.from_config(self.config))
        facts = {"architectures": [type(self.model).__name__], "dtype": str(self.model.dtype).removeprefix("torch.")}
        tokenizer = None if self.tokenizer is None else self.require_tokenizer()
        write_model(Path(folder), _plain(self.config) | facts, _once(self.model), expected, tokenizer)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Baseline":
        """Load what `save_pretrained` wrote: a model that `baseline_of` builds, of any size.

        `transformers` gets the configuration and the tensors, and reads no file: no pickle, no code, no network.

        Raises:
            ImportError: `transformers` is not installed.
            FileNotFoundError, ValueError: the folder holds no such model, or one that is damaged; this is found before
                anything is built.  Or it was saved anew meanwhile.
        """
        folder = Path(folder)
        with reading_folder(folder, last=CONFIG, hashes=SUMS):
            stored, shapes = read_config(folder), read_shapes(folder)
            config = _stored_configuration(folder, stored, shapes)
            with torch.device("meta"):
                model = _transformers().AutoModelForCausalLM.from_config(config)
            state = read_weights(folder)
            loaded = cls(type(model).from_pretrained(None, config=config, state_dict=state,
                                                     dtype=next(iter(state.values())).dtype))
            loaded.take_tokenizer(lambda: load_tokenizer(folder))
        return loaded

    @property
    def config(self):
        """The configuration, of the class that `transformers` has for this architecture."""
        return self.model.config

    @property
    def embedding(self) -> nn.Embedding:
        """The embedding, whose matrix `[vocab_size, D]` is the output matrix too."""
        return self.model.get_input_embeddings()


def _transformers():
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise missing("a baseline", "transformers") from None
    return transformers


def _configuration(name: str, size: CaracalConfig, **changes: Any):
    """Return the configuration of a baseline, with some fields changed, of the class that `transformers` has for it."""
    if not torch.cuda.is_available():  # the kernels need CUDA: no use in being told that they are not installed
        logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)
    return _transformers().AutoConfig.for_model(
        name, vocab_size=size.vocab_size, hidden_size=size.d_model, initializer_range=0.02, tie_word_embeddings=True,
        use_cache=False, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        max_position_embeddings=size.max_positions, **(_layers(name, size) | changes))


def _stored_configuration(folder: Path, stored: dict, shapes: Shapes):
    """Return the configuration of the baseline that a folder holds, after a check that it is one, and of this size."""
    name, path = stored.get("model_type"), folder / CONFIG
    if name not in BASELINES:
        raise ValueError(f"{path} describes a model of type {short_repr(name)}; accepted: {', '.join(BASELINES)}")
    mamba = name.startswith("mamba")
    counts = {field: stored.get(field) for field in ("vocab_size", "hidden_size", "num_hidden_layers")}
    counts["num_attention_heads"] = 1 if mamba else stored.get("num_attention_heads")
    for field, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{path}: {field}={short_repr(count)}; give a whole number >= 1")
    vocab_size, width, layers, heads = counts.values()
    stem, embedding = ("backbone", "embeddings") if mamba else ("model", "embed_tokens")
    require_sizes(folder, shapes, layers, {f"{stem}.{embedding}.weight": (vocab_size, width)})
    try:
        size = CaracalConfig(vocab_size, width, layers // 2 if mamba else layers, heads,
                             max_positions=stored.get("max_position_embeddings", CaracalConfig.max_positions))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    config = _configuration(name, size)
    made = _plain(config)
    for field in sorted(stored.keys() - _WITHOUT_MEANING):
        if field not in made or stored[field] != made[field]:
            ours = f"{field}={made[field]!r}" if field in made else "no such field"
            raise ValueError(f"{path}: {short_repr(field)} is {short_repr(stored[field])}; a {name} of this "
                             f"package, of this size and with this version of transformers, has {ours}")
    period = {"jamba": 6}.get(name, 1)
    with torch.device("meta"):
        small = _transformers().AutoModelForCausalLM.from_config(
            _configuration(name, replace(size, n_layers=period)))
    require_shapes(folder, shapes, repeat_layers(_shapes(small), f"{stem}.layers.", layers, lambda i: i % period))
    return config


def _plain(config) -> dict:
    """Return a configuration of `transformers` as JSON has it."""
    return json.loads(config.to_json_string(use_diff=False))


def _once(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name, those that have two names once, as the output matrix does."""
    every, once = (dict(model.named_parameters(remove_duplicate=flag)) for flag in (False, True))
    return {name: t for name, t in model.state_dict().items() if name in once or name not in every}


def _shapes(model: nn.Module) -> Shapes:
    return {name: tuple(t.shape) for name, t in _once(model).items()}


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
