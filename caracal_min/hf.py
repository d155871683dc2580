"""The model for `transformers`, registered on import with `AutoModel` and `AutoModelForCausalLM`::

    import caracal_min.hf
    model = AutoModelForCausalLM.from_pretrained("runs/nano/model")

It has the layers of `model.Caracal` and calls its forward pass.  Each class reads the folders that
the other wrote, and gives the same logits: tensors have the names of `Caracal` on disk.
"""

from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor, nn

from .config import CaracalConfig
from .decoding import Cache
from .layers import Block
from .model import Caracal
from .packing import PackedDocuments

try:
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        GenerationMixin,
        PreTrainedConfig,
        PreTrainedModel,
    )
except ModuleNotFoundError:
    raise ImportError("hf needs transformers: pip install transformers accelerate") from None
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.initialization import guard_torch_init_functions
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

__all__ = ["CaracalCache", "CaracalForCausalLM", "CaracalModel", "PretrainedCaracalConfig"]


class PretrainedCaracalConfig(PreTrainedConfig):
    """The fields of `config.CaracalConfig`, in the class that `transformers` asks for.

    Args:
        pad_token_id, bos_token_id, eos_token_id: special ids of the tokenizer, where it has them.
        use_cache: whether `generate` decodes with a cache.

    Raises:
        TypeError: a field without a default is missing.
        ValueError: a field is out of range.

    Example:
        >>> config = PretrainedCaracalConfig(vocab_size=256, d_model=64, n_layers=3, n_heads=2)
        >>> config.hidden_size, config.shape.window_size
        (64, 256)
    """

    model_type = "caracal"
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_positions",
    }
    keys_to_ignore_at_inference = ["past_key_values", "cache"]
    auto_map = {}  # TRL asks every configuration which of its classes are code on the hub
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **options: Any):
        options = {self.attribute_map.get(name, name): value for name, value in options.items()}
        names = [f.name for f in fields(CaracalConfig) if f.name in options]
        ours = CaracalConfig(**{name: options.pop(name) for name in names})
        super().__post_init__(**options, **asdict(ours))

    @property
    def shape(self) -> CaracalConfig:
        """The configuration of the same model as a `Caracal`."""
        return CaracalConfig(**{f.name: getattr(self, f.name) for f in fields(CaracalConfig)})


class CaracalCache:
    """What `generate` hands from step to step: a cache for each layer, and the tokens they read.

    Caches that are full are replaced by longer ones, which read all tokens again in one pass.

    Attributes:
        layers: one cache per block (`decoding`); empty before the first token.
        tokens, mask: the input_ids so far, `[B, N]`, and where they are not padding, `[B, N]`.
    """

    # What `generate` asks of a cache; is_linear, of each layer, from transformers 5.24 on.
    is_compileable = is_croppable = False
    is_linear = (False,)

    def __init__(self) -> None:
        self.layers: list[Cache] = []
        self.tokens: Tensor | None = None
        self.mask: Tensor | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return N, the tokens of a row so far, padding included."""
        return 0 if self.tokens is None else self.tokens.shape[1]

    def reorder_cache(self, rows: Tensor) -> None:
        """Let row i continue what row rows[i] was, for beam search; rows: `[B]`."""
        for layer in self.layers:
            layer.reorder(rows)
        self.tokens = self.tokens[rows]
        self.mask = self.mask[rows]

    def reserve(self, model: "CaracalModel", ids: Tensor) -> None:
        """Make room for the new ids `[B, L]` of a model."""
        longest = max(self.layers[0].held) if self.layers else 0
        needed = longest + ids.shape[1]
        # A cut gate and a window take any number of tokens.
        if self.layers and all((layer.capacity or needed) >= needed for layer in self.layers):
            return
        # Half as many tokens again, so that a long text is read anew only a few times.
        capacity = needed + max(256, needed // 2)
        self.layers = model.new_caches(len(ids), capacity, device=ids.device)
        if self.tokens is not None:
            rows = _Rows(self.tokens, self.mask)
            with torch.no_grad():
                model.hidden(rows.tokens, self.layers, rows.lengths)

    def append(self, ids: Tensor, mask: Tensor) -> None:
        """Remember what the layers have read: ids and mask `[B, L]`."""
        if self.tokens is not None:
            ids = torch.cat([self.tokens, ids], dim=1)
            mask = torch.cat([self.mask, mask], dim=1)
        self.tokens = ids
        self.mask = mask


class CaracalBlock(GradientCheckpointingLayer, Block):
    """A `Block` that `transformers` can recompute in the backward pass."""


class CaracalPreTrainedModel(PreTrainedModel):
    """What `transformers` asks about the model, with and without its head."""

    config_class = PretrainedCaracalConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    model_tags = ["caracal"]
    _supports_sdpa = True
    # A convolution that went on cannot go back, as assisted generation would need.
    _is_stateful = True
    _input_embed_layer = "embedding"
    _no_split_modules = ["CaracalBlock"]
    _can_record_outputs = {"hidden_states": CaracalBlock}

    def initialize_weights(self) -> None:
        """Draw weights as `Caracal` does; those that were loaded are left as they are."""
        # The library's scheme covers norms and a head that is not tied; ours depends on names.
        super().initialize_weights()
        with torch.no_grad(), guard_torch_init_functions():
            Caracal._initialise(self.base_model)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # It would store keys and values; the first forward pass makes a CaracalCache instead.
        return False


class CaracalModel(CaracalPreTrainedModel):
    """The blocks of `model.Caracal`, without the output layer: ids to hidden states.

    Args:
        config: shape and initialisation.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    hidden = Caracal.hidden
    new_caches = Caracal.new_caches

    def __init__(self, config: PretrainedCaracalConfig):
        super().__init__(config)
        # Built by `Caracal`, so that what the layers are is said in one place.
        whole = Caracal(config.shape)
        self.embedding = whole.embedding
        self.positions = whole.positions
        self.blocks = nn.ModuleList()
        for block in whole.blocks:
            self.blocks.append(CaracalBlock(block.mixer, whole.config.mlp_width))
        self.norm = whole.norm
        self.post_init()

    @can_return_tuple
    def forward(
            self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor |
            None = None, past_key_values: CaracalCache | None = None, use_cache: bool | None = None,
            cache: CaracalCache | None = None, **options: Any
    ) -> BaseModelOutputWithPast:
        """Return last_hidden_state, `[B, L, D]`, the cache, and hidden_states where asked for.

        Arguments as `CaracalForCausalLM.forward`.  Padding gets the state of the last token before
        it, and zeros where there is none.
        """
        ids = Caracal.require_tokens(self, input_ids, "input_ids")
        past = _cache(past_key_values, cache, use_cache)
        rows = _Rows(ids, _mask(ids, attention_mask), position_ids)
        if past is None:
            states = self._read(rows.tokens, **options)
        else:
            past.reserve(self, ids)
            # The caches hold no graph, so gradients through them would be wrong.
            with torch.no_grad():
                states = self._read(rows.tokens, past.layers, rows.lengths, **options)
            past.append(ids, rows.mask)
        last = rows.restore(states.last_hidden_state)
        # What a tool reads of a block has the order of the ids too.
        between = tuple(rows.restore(h) for h in states.hidden_states or ())
        # By position, since transformers 5.24 renames past_key_values to cache.
        return BaseModelOutputWithPast(last, past, between or None)

    @capture_outputs
    def _read(self, tokens, caches=None, lengths=None, **_):
        return BaseModelOutputWithPast(self.hidden(tokens, caches, lengths))


class CaracalForCausalLM(CaracalPreTrainedModel, GenerationMixin):
    """`model.Caracal` for what is built on `transformers`: `generate`, pipelines, `Trainer`, PEFT.

    Args:
        config: shape and initialisation.

    Padding, on either side, is what `attention_mask` says: a row gives what it gives alone.

    Example:
        >>> from transformers import AutoModelForCausalLM
        >>> folder = "caracal_min/pretrained/micro"
        >>> model = AutoModelForCausalLM.from_pretrained(folder)
        >>> model(torch.tensor([[464, 2106]])).logits.shape
        torch.Size([1, 2, 4096])

    Source: Caracal, Section 3.1 and Appendix E.
    """

    _tied_weights_keys = {"lm_head.weight": "model.embedding.weight"}

    def __init__(self, config: PretrainedCaracalConfig):
        super().__init__(config)
        self.model = CaracalModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        # `Trainer` resumes by load_state_dict, and a checkpoint has the names of `Caracal`.
        self.register_load_state_dict_pre_hook(_add_prefix)
        self.post_init()

    @classmethod
    def from_caracal(cls, model: Caracal) -> "CaracalForCausalLM":
        """Return a model that shares the weights of `model`: what changes them changes both.

        A change of type or device, as by `to` or `double`, gives one of them weights of its own.
        """
        special = {}
        if model.tokenizer is not None:
            special["eos_token_id"] = model.tokenizer.end_of_text
        # Without memory or random numbers; `assign` then makes the tensors its weights.
        with torch.device("meta"):
            made = cls(PretrainedCaracalConfig(**asdict(model.config), **special))
        tensors = model.state_dict() | {"lm_head.weight": model.embedding.weight}
        made.load_state_dict(tensors, assign=True)
        made.tie_weights()
        return made.train(model.training)

    @can_return_tuple
    def forward(
            self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor |
            None = None, past_key_values: CaracalCache | None = None, labels: Tensor | None = None,
            use_cache: bool | None = None, logits_to_keep: int | Tensor = 0, cache: CaracalCache |
            None = None, **options: Any
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every position.

        Args:
            input_ids: ids of the new tokens, `[B, L]`, of an integer type.
            attention_mask: 0 at padding, 1 elsewhere, `[B, L]`, or `[B, N + L]` with the N tokens
                of a cache.  Logits at padding are those of the last token before it, or 0.
            position_ids: `[B, L]` or `[1, L]`.  A document begins wherever they are 0, and gives
                what it gives alone, as with `documents` of `Caracal`; other values mean nothing.
            past_key_values: cache to continue, which is changed; no gradients flow through it.
            labels: ids, `[B, L]`, those of input_ids: each is predicted from the tokens before it.
                The first of a row or document is left out, and so is -100.
            use_cache: whether to begin a cache; None begins none, also where the configuration
                has use_cache, so a loop of your own passes True.
            logits_to_keep: how many positions, from the end, get logits, or which; 0: all.
            cache: the name of past_key_values from transformers 5.24 on.
            options: of the loss, as `num_items_in_batch`, which its sum is divided by, and
                `output_hidden_states`.

        Returns:
            loss in nats per token, logits `[B, kept, vocab_size]`, the cache, and hidden states.

        Raises:
            ValueError: ids of a wrong shape, type or device, or out of range (on a CPU only).
        """
        # Made here rather than below, because the library renames the field that returns it.
        past = _cache(past_key_values, cache, use_cache)
        states = self.model(input_ids, attention_mask, position_ids, past, **options)
        logits = self.lm_head(slice_logits_to_keep(states.last_hidden_state, logits_to_keep))
        if past is not None:
            # The gradient would be that of the head alone.
            logits = logits.detach()
        loss = None
        if labels is not None:
            # Nothing stands before the first token of a text that could predict it.
            first = _mask(input_ids, attention_mask).cumsum(1) < 2
            if position_ids is not None:
                first = first | (position_ids == 0)
            labels = labels.long().masked_fill(first, -100)
            size = self.config.vocab_size
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=size, **options)
        return CausalLMOutputWithPast(loss, logits, past, states.hidden_states)


class _Rows:
    """A batch as the layers read it: padding on the right, and packed documents in own rows.

    The model is causal, so that padding on the right changes nothing.

    Args:
        ids: `[B, L]`.
        mask: True at tokens, False at padding, `[B, L]`.
        position_ids: 0 where a document begins, `[B, L]` or `[1, L]`; None: one document a row.

    Attributes:
        tokens: ids to read, `[rows, longest]`.
        lengths: tokens in each row, where rows are padded; else None.
    """

    def __init__(self, ids: Tensor, mask: Tensor, position_ids: Tensor | None = None):
        self.tokens = ids
        self.mask = mask
        self.lengths = order = self.packed = None
        if not mask.all():
            # A stable sort moves padding behind the tokens, which keep their order.
            order = (~mask).int().argsort(dim=1, stable=True)
            self.tokens = ids.gather(1, order)
            self.lengths = mask.sum(1).tolist()
        if position_ids is None:
            return
        # Positions of padding mean nothing; collators fill them with 0 or 1.
        first = mask & (position_ids == 0)
        if first.sum(1).max() < 2:
            return
        # The largest number for padding, which comes last in its row.
        documents = first.cumsum(1).masked_fill(~mask, ids.shape[1] + 1)
        if order is not None:
            documents = documents.gather(1, order)
        self.packed = PackedDocuments(documents, self.tokens)
        self.tokens = self.packed.apart(self.tokens)

    def restore(self, hidden: Tensor) -> Tensor:
        """Return states `[rows, longest, D]` in the order of the ids, `[B, L, D]`."""
        if self.packed is not None:
            hidden = self.packed.together(hidden)
        if self.lengths is None:
            return hidden
        # Zeros before the first token: trainers that score it there must not learn from it.
        read = self.mask.cumsum(1).unsqueeze(-1)
        return hidden.take_along_dim((read - 1).clamp(min=0), dim=1).where(read > 0, 0)


def _cache(
    past: CaracalCache | None, cache: CaracalCache | None, use_cache: bool | None
) -> CaracalCache | None:
    """Return the cache given by either name, or an empty one if one is wanted."""
    past = past if cache is None else cache
    return CaracalCache() if past is None and use_cache else past


def _mask(ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return where the new ids `[B, L]` are tokens and not padding: bool `[B, L]`."""
    if attention_mask is None:
        return torch.ones_like(ids, dtype=torch.bool)
    # With a cache, the mask covers the tokens before these too.
    return attention_mask[:, -ids.shape[1]:].bool().expand_as(ids)


def _add_prefix(model: nn.Module, state: dict[str, Tensor], *_: Any) -> None:
    """Rename the tensors of a `Caracal` in place to those of a model with a head."""
    for name in list(state):
        if name.startswith(_BASE):
            state[f"model.{name}"] = state.pop(name)


# Children of the base model.  Beside a head they stand under "model." in memory, not on disk.
_BASE = ("embedding.", "positions.", "blocks.", "norm.")
register_checkpoint_conversion_mapping(
    CaracalForCausalLM.__name__,
    [WeightRenaming(f"^{name}", f"^model.{name}") for name in _BASE],
)
AutoConfig.register(PretrainedCaracalConfig.model_type, PretrainedCaracalConfig)
AutoModel.register(PretrainedCaracalConfig, CaracalModel)
AutoModelForCausalLM.register(PretrainedCaracalConfig, CaracalForCausalLM)
# By this name `Trainer` knows that smoothed labels, too, are those of the next token.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[PretrainedCaracalConfig.model_type] = CaracalForCausalLM.__name__
