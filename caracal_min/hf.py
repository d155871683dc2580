"""The model as `transformers` knows it: `CaracalForCausalLM`, registered for `AutoModelForCausalLM` on import::

    import caracal_min.hf
    model = AutoModelForCausalLM.from_pretrained("runs/nano/model")    # what Caracal.save_pretrained wrote

It has the modules of `model.Caracal` under the same names, and its forward pass: each class reads the folders of the
other, and the logits are equal, up to the last bits where a processor sums otherwise for weights that lie otherwise in
memory.
"""

from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from torch import Tensor, nn

from .config import CaracalConfig
from .caches import CaracalCache
from .decoding import Cache
from .extras import missing
from .files import reading_folder
from .layers import Block
from .model import CONFIG, SUMS, Caracal, read_config, replacing_weights
from .packing import PackedDocuments, documents_of_positions, new_tokens, padded_right

try:
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
    from transformers.initialization import guard_torch_init_functions
    from transformers.modeling_layers import GradientCheckpointingLayer
    from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast
    from transformers.modeling_utils import slice_logits_to_keep
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from transformers.utils import can_return_tuple
    from transformers.utils.output_capturing import capture_outputs
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise missing("caracal_min.hf", "transformers", "hf") from None

_CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [caracal]
---
A Caracal language model (Gan et al., ICML 2026) with {parameters:,} parameters.  Its class is in `caracal_min`:

    import caracal_min.hf, transformers
    transformers.pipeline("text-generation", "{repo}")("The ", max_new_tokens=50)

    {shape}
"""
_OF_AN_UPLOAD = {"repo_id", "private", "commit_message", "commit_description", "revision", "create_pr"}

__all__ = ["CaracalForCausalLM", "PretrainedCaracalConfig"]


class PretrainedCaracalConfig(PreTrainedConfig):
    """The fields of `config.CaracalConfig`, in the class that `transformers` asks for.

    Raises:
        TypeError: a field without a default is missing.
        ValueError: a field out of range, in one line.
    """

    model_type = "caracal"
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
                     "max_position_embeddings": "max_positions"}
    keys_to_ignore_at_inference = ["past_key_values", "cache"]
    tie_word_embeddings: bool = True

    def __post_init__(self, **given: Any):
        given = {self.attribute_map.get(name, name): value for name, value in given.items()}
        ours = CaracalConfig(**{f.name: given.pop(f.name) for f in fields(CaracalConfig) if f.name in given})
        super().__post_init__(**given, **asdict(ours))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Make what a `config.json` describes, and remember what it holds."""
        read = dict(config_dict)
        made = super().from_dict(config_dict, **options)
        (made[0] if isinstance(made, tuple) else made)._read = read
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return what to write into a `config.json`."""
        return {name: value for name, value in super().to_dict().items() if name != "_read"}

    @property
    def shape(self) -> CaracalConfig:
        """The same as `Caracal` takes it."""
        return CaracalConfig(**{f.name: getattr(self, f.name) for f in fields(CaracalConfig)})


class CaracalBlock(GradientCheckpointingLayer, Block):
    """A block whose inside `transformers` can compute again in the backward pass."""


class CaracalForCausalLM(PreTrainedModel, GenerationMixin):
    """`model.Caracal` for what is built on `transformers`: `generate`, pipelines, `Trainer`, PEFT, the hub.

    Args:
        config: shape and initialisation.

    Padding, on either side, is what `attention_mask` says: a row of a batch gives what it gives alone.

    Source: Caracal, Section 3.1 and Appendix E.
    """

    config_class = PretrainedCaracalConfig
    supports_gradient_checkpointing = True
    model_tags = ["caracal"]
    _supports_sdpa = True
    _is_stateful = True  # a cache cannot go back, as assisted generation would need
    _input_embed_layer = "embedding"
    _no_split_modules = ["CaracalBlock"]
    _tied_weights_keys = {"lm_head.weight": "embedding.weight"}
    _can_record_outputs = {"hidden_states": CaracalBlock}

    hidden, new_caches, seen = Caracal.hidden, Caracal.new_caches, staticmethod(Caracal.seen)
    require_tokens = Caracal.require_tokens

    def __init__(self, config: PretrainedCaracalConfig):
        super().__init__(config)
        whole = Caracal(config.shape)
        self.embedding, self.positions, self.norm = whole.embedding, whole.positions, whole.norm
        self.blocks = nn.ModuleList(CaracalBlock(block.mixer, whole.config.mlp_width) for block in whole.blocks)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    @classmethod
    def from_caracal(cls, model: Caracal) -> "CaracalForCausalLM":
        """Return a model that shares the weights of `model`: what changes them changes both.

        A change of type or device, as by `to` and `double`, gives one of them weights of its own.
        """
        ends = {} if model.tokenizer is None else {"eos_token_id": model.tokenizer.end_of_text}
        with torch.device("meta"):
            made = cls(PretrainedCaracalConfig(**asdict(model.config), **ends))
        made.load_state_dict(model.state_dict() | {"lm_head.weight": model.embedding.weight}, assign=True)
        made.tie_weights()
        return made.train(model.training)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path | None, *arguments: Any, config: Any = None,
                        **options: Any) -> Any:
        """Load a model as `PreTrainedModel` does; ValueError where it is saved anew while it is read from a folder."""
        name = pretrained_model_name_or_path
        folder = Path(name or "", options.get("subfolder") or "")
        with reading_folder(folder, last=CONFIG, hashes=SUMS) if name is not None else nullcontext():
            read = getattr(config, "_read", None)  # where Auto has read it, before this call
            stored = read_config(folder) if read and config.name_or_path == str(name) and folder.is_dir() else {}
            if any(stored[field.name] not in (read[field.name], getattr(config, field.name))
                   for field in fields(CaracalConfig) if field.name in stored and field.name in read):
                raise ValueError(f"{folder} was saved anew after its {CONFIG} was read; read that again")
            return super().from_pretrained(name, *arguments, config=config, **options)

    @torch.no_grad()
    @guard_torch_init_functions()
    def initialize_weights(self) -> None:
        """Draw weights as `Caracal` does; transformers keeps those that were loaded from changing."""
        for norm in (module for module in self.modules() if isinstance(module, nn.LayerNorm)):
            norm.reset_parameters()
        Caracal._initialise(self)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # keys and values would be kept: the first forward pass makes a CaracalCache

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True,
                        state_dict: dict[str, Tensor] | None = None, push_to_hub: bool = False, *arguments: Any,
                        **options: Any) -> None:
        """Write the model as `PreTrainedModel` does, or nothing; it replaces other weights there, and their hashes.

        With `push_to_hub` the files are uploaded when all are there, so they stay whatever becomes of the upload.  Its
        options are those of the method, and `repo_id`, which is the name of the folder if left out.
        """
        upload = {name: options.pop(name) for name in _OF_AN_UPLOAD & options.keys()}
        given = (is_main_process, state_dict, False, *arguments)
        if not is_main_process:  # which may gather what the main process writes
            return super().save_pretrained(save_directory, *given, **options)
        with replacing_weights(folder := Path(save_directory)) as partial:
            super().save_pretrained(partial, *given, **options)
            written = [file.name for file in partial.iterdir()]
        if push_to_hub and written:
            hub = HfApi(token=options.get("token"))
            repo = self._with_card(hub, upload.pop("repo_id", folder.name), upload.pop("private", None))
            if (branch := upload.get("revision")) and not branch.startswith("refs/"):
                hub.create_branch(repo, branch=branch, exist_ok=True)
            hub.upload_folder(repo_id=repo, folder_path=folder, allow_patterns=written, **upload)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model as `PreTrainedModel` does; where no card is, one says how to load it."""
        repo = self._with_card(HfApi(token=options.get("token")), repo_id, options.get("private"))
        return super().push_to_hub(repo, **options)

    def _with_card(self, hub: HfApi, repo_id: str, private: bool | None) -> str:
        """Return the full name of a repository on the hub, which is made if absent, and so is its card."""
        repo = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if not hub.file_exists(repo, "README.md"):
            card = _CARD.format(repo=repo, parameters=self.num_parameters(), shape=self.config.shape)
            hub.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo)
        return repo

    @can_return_tuple
    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
                position_ids: Tensor | None = None, past_key_values: CaracalCache | None = None,
                labels: Tensor | None = None, use_cache: bool | None = None, logits_to_keep: int | Tensor = 0,
                cache: CaracalCache | None = None, **options: Any) -> CausalLMOutputWithPast:
        """Predict the next token at every position.

        Args:
            input_ids: ids of the new tokens, `[B, L]`, integer.
            attention_mask: 0 at padding, 1 elsewhere, `[B, L]`, or `[B, N + L]` with the N tokens of a cache.  Padding
                gets the logits of the last token before it, and 0 where there is none.
            position_ids: `[B, L]` or `[1, L]`, which count each row's tokens, as they do if left out.  Where they
                begin at 0 again, so does a document: each gives what it gives alone, as for `Caracal`.
            past_key_values: cache to continue, which is changed; gradients do not flow through it.  From version 5.24
                of transformers on it is called `cache`.
            labels: ids, `[B, L]`, as input_ids: each is predicted from those before it, so the first of a document is
                left out, and so is -100: give the first -100 where something else counts them, as `Trainer` does.
            use_cache: whether to begin a cache.
            logits_to_keep: how many positions, from the end, get logits, or which; 0: all.
            options: of the loss, as `num_items_in_batch`, which its sum is divided by; `output_hidden_states`.

        Returns:
            loss in nats per token, logits `[B, kept, vocab_size]`, the cache, and hidden states where asked for.

        Raises:
            ValueError: no ids, or embeddings; ids, a mask or positions of another shape; a mask of other numbers than 0
                and 1 (found on a CPU only); positions that count something else; another kind of cache; several
                documents in a row, or a row of padding alone, with a cache; adapters that change one of `embedding` and
                `lm_head`, or each in its way, while these are tied.
        """
        held = [{*part.parameters()} for part in (self.embedding, self.lm_head)]
        if self.config.tie_word_embeddings and held[0] != held[1] and max(map(len, held)) > 1:
            raise ValueError("embedding and lm_head are one matrix, an adapter changes one use; adapt others or train "
                             "it whole (PEFT: modules_to_save=['lm_head'], ensure_weight_tying=True; merge, then save)")
        past = past_key_values if cache is None else cache
        if input_ids is None or options.get("inputs_embeds") is not None:
            raise ValueError("give input_ids, [batch, length], alone: embeddings in their place are not taken")
        if position_ids is None and not options.keys().isdisjoint(("cu_seq_lens_q", "seq_idx")):
            raise ValueError("documents of a row are known by position_ids that begin at 0 with each; give these")
        if not isinstance(past, CaracalCache | None):
            raise ValueError(f"past_key_values is a {type(past).__name__}; give what a call of this model returned")
        self.require_tokens(input_ids, "input_ids")
        past = CaracalCache() if past is None and use_cache else past
        held = None if past is None else past.get_seq_length()
        mask = new_tokens(attention_mask, input_ids, held or 0)
        documents = None if position_ids is None else documents_of_positions(position_ids, mask, held)
        tokens, lengths, padded = input_ids, None, attention_mask is not None and not mask.all()
        if padded:  # padding on the right is harmless, and caches know the lengths of their rows
            tokens, lengths = padded_right(input_ids, mask), mask.sum(1).tolist()
            if past is not None and 0 in lengths:
                raise ValueError(f"attention_mask leaves no token in row {lengths.index(0)}; a cache takes one or more")
        if documents is not None:
            packed = PackedDocuments(padded_right(documents, mask) if padded else documents, tokens)
            tokens = packed.apart(tokens)
        if past is None:
            states = self._read(tokens, **options)
        else:
            past.reserve(self, tokens)
            states = self._read(tokens, past.layers, lengths, **options)
            past.keep(input_ids, mask)
        hidden = [states.last_hidden_state, *(states.hidden_states or ())]
        hidden = hidden if documents is None else [packed.together(h) for h in hidden]
        if padded:
            read = mask.cumsum(1)[..., None]
            hidden = [h.take_along_dim((read - 1).clamp(min=0), 1).where(read > 0, 0) for h in hidden]
        logits, loss = self.lm_head(slice_logits_to_keep(hidden[0], logits_to_keep)), None
        logits = logits if past is None else logits.detach()
        if labels is not None:  # the first token of a row has nothing before it that could predict it
            labels = labels.masked_fill(mask.cumsum(1) == mask.int(), -100)
            if documents is not None:
                labels = labels.masked_fill(position_ids == 0, -100)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options)
        return CausalLMOutputWithPast(loss, logits, past, tuple(hidden[1:]) or None)

    @capture_outputs
    def _read(self, tokens: Tensor, caches: list[Cache] | None = None, lengths: list[int] | None = None,
              **_: Any) -> BaseModelOutput:
        with torch.set_grad_enabled(caches is None and torch.is_grad_enabled()):
            return BaseModelOutput(self.hidden(tokens, caches, lengths))


AutoConfig.register(PretrainedCaracalConfig.model_type, PretrainedCaracalConfig)
AutoModelForCausalLM.register(PretrainedCaracalConfig, CaracalForCausalLM)
# By this name `Trainer` knows that smoothed labels, too, are those of the next token.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[PretrainedCaracalConfig.model_type] = CaracalForCausalLM.__name__
