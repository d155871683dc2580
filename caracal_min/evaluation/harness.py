"""The models of this package as a model of lm-evaluation-harness, called `caracal` there::

    import caracal_min.evaluation.harness                           # registers the name
    lm_eval.simple_evaluate("caracal", "pretrained=runs/tiny/model", tasks=["hellaswag"])

or, for a model in memory, `HarnessModel(model)`.  Batches are padded on the right, which a causal model cannot see.
"""

import importlib.metadata
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from ..data.tokenizers import tokenizer_for
from ..extras import missing
from ..generation import draw
from ..language_model import LanguageModel
from ..loss import rows_at_once, token_loss
from ..model import Caracal
from ..precision import autocast, find_device, resolve_precision
from ..zoo.registry import load_model

try:
    import datasets
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate
    from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks import __file__ as _TASK_FOLDER
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ModuleNotFoundError as error:
    if error.name.partition(".")[0] not in ("datasets", "lm_eval"):
        raise
    raise missing("evaluation on tasks", "lm-eval", "eval") from None

__all__ = ["HARNESS_VERSION", "HarnessModel", "build_tasks", "run_tasks"]

HARNESS_VERSION = importlib.metadata.version("lm_eval")
"""Version of lm-evaluation-harness."""


@register_model("caracal")
class HarnessModel(TemplateLM):
    """Answers the harness's requests with a language model and the tokenizer of its size of vocabulary.

    Numbers of other packages were made with the harness's own Hugging Face model; texts are encoded, split, prefixed
    and cut as there.  Log-likelihoods come of a forward pass in `precision` and a softmax in float32.

    Args:
        pretrained: a model, or the folder or hub repository of one (`zoo.load_model`).
        batch_size: sequences per forward pass.
        max_length: most tokens that the model sees at once; longer texts lose their beginning.
        max_gen_toks: most tokens to generate where a task does not say.
        device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        precision: one of `precision.PRECISIONS`; "auto" takes the fastest that the device has units for.
        gate_length: cuts the gate of a Caracal that is loaded, for texts longer than those it was trained on.
        max_batch_size: given by the harness, not used.

    Raises:
        ValueError: no tokenizer has as many ids as the model, a size below 1, or no such device.
    """

    def __init__(self, pretrained: str | LanguageModel, batch_size: int = 16, max_length: int = 2048,
                 max_gen_toks: int = 256, device: str = "auto", precision: str = "auto",
                 max_batch_size: int | None = None, gate_length: int | None = None):
        super().__init__()
        cut = () if gate_length is None else (("gate_length", gate_length),)
        for name, value in (("batch_size", batch_size), ("max_length", max_length), ("max_gen_toks", max_gen_toks),
                            *cut):
            if not str(value).isdecimal() or int(value) < 1:
                raise ValueError(f"{name}={value}; give a number >= 1")
        self.batch_size, self.max_length, self.max_gen_toks = int(batch_size), int(max_length), int(max_gen_toks)
        self._device = find_device(device)
        self._precision = resolve_precision(precision, self._device)
        model = pretrained if isinstance(pretrained, LanguageModel) else load_model(
            pretrained, None if gate_length is None else int(gate_length))
        if getattr(model.config, "positional_encoding", None) == "learned":
            self.max_length = min(self.max_length, model.config.max_positions)
        self.tokenizer = tokenizer_for(model.config.vocab_size)
        self.model = model.to(self._device).eval()

    @property
    def eot_token_id(self) -> int:
        """Id that ends a document; it stands before a text that has no context."""
        return self.tokenizer.end_of_text

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        """Return the ids of a text; the tokenizers here add no special tokens."""
        return self.tokenizer.encode(string)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability, in nats, of each whole text, read in disjoint windows of `max_length`."""
        windows = []
        for i, (text,) in enumerate(request.args for request in requests):
            pieces = get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)
            windows += [(i, *make_disjoint_window(piece)) for piece in pieces]
        totals = [0.0] * len(requests)
        scores = self._loglikelihood_tokens(windows, disable_tqdm)
        for (i, *_), (score, _) in zip(windows, scores, strict=True):
            totals[i] += score
        return totals

    @torch.inference_mode()
    def _loglikelihood_tokens(self, requests: list[tuple[object, list[int], list[int]]],
                              disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return log-probability (nats) and greediness of each continuation; requests are (key, context, continuation).

        Requests whose inputs are equal, as those of one question with answers of one token, share a forward pass.
        """
        same_inputs = defaultdict(list)
        for i, (_, context, continuation) in enumerate(requests):
            if not 0 < len(continuation) <= self.max_length:
                raise ValueError(f"a continuation has {len(continuation)} tokens; max_length={self.max_length} allows "
                                 f"1 to {self.max_length}: raise max_length")
            same_inputs[tuple((context + continuation)[-self.max_length - 1:-1])].append(i)
        ordered = sorted(same_inputs, key=len, reverse=True)
        scores: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
        with tqdm(total=len(requests), desc="log-likelihoods", disable=disable_tqdm) as bar:
            for start in range(0, len(ordered), self.batch_size):
                batch = ordered[start:start + self.batch_size]
                chosen = [(row, i) for row, inputs in enumerate(batch) for i in same_inputs[inputs]]
                targets = [torch.tensor(requests[i][2], device=self._device) for _, i in chosen]
                with autocast(self._device, self._precision):
                    hidden = self._hidden(batch)
                    states = [hidden[row, len(batch[row]) - len(t):len(batch[row])]
                              for (row, _), t in zip(chosen, targets, strict=True)]
                    losses, greedy = self._score(torch.cat(states), torch.cat(targets))
                lengths = [len(t) for t in targets]
                for (_, i), loss, best in zip(chosen, losses.split(lengths), greedy.split(lengths), strict=True):
                    scores[i] = -loss.sum().item(), bool(best.all())
                bar.update(len(chosen))
        return scores

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return a continuation of each context, cut before the first of its `until` strings.

        Of the harness's options `until`, `max_gen_toks`, `do_sample`, `temperature`, `top_k` and `top_p` are followed.
        Contexts of one batch have different lengths; Caracal continues them with its exact caches.
        """
        alike = defaultdict(list)
        for i, request in enumerate(requests):
            alike[repr(request.args[1])].append(i)
        texts = [""] * len(requests)
        with tqdm(total=len(requests), desc="generation", disable=disable_tqdm) as bar:
            for members in alike.values():
                options = normalize_gen_kwargs(requests[members[0]].args[1], self.max_gen_toks)
                room = self.max_length - options["max_gen_toks"]
                if room < 1:
                    raise ValueError(f"max_gen_toks={options['max_gen_toks']} leaves no room for a context in "
                                     f"max_length={self.max_length}; lower the one or raise the other")
                prompts = {i: (self.tok_encode(requests[i].args[0]) or [self.eot_token_id])[-room:] for i in members}
                members = sorted(members, key=lambda i: len(prompts[i]), reverse=True)
                for start in range(0, len(members), self.batch_size):
                    batch = members[start:start + self.batch_size]
                    for i, text in zip(batch, self._continue([prompts[i] for i in batch], options), strict=True):
                        texts[i] = text
                    bar.update(len(batch))
        return texts

    def _continue(self, prompts: list[list[int]], options: dict) -> list[str]:
        stops = handle_stop_sequences(options.get("until"), eos=None)
        sampling = {"temperature": options.get("temperature", 1.0) if options["do_sample"] else 0.0,
                    "top_k": options.get("top_k") or None, "top_p": options.get("top_p")}
        stream = self.model.stream if isinstance(self.model, Caracal) else self._stream
        rows = [[] for _ in prompts]
        for drawn in stream(prompts, options["max_gen_toks"], **sampling):
            for row, token in zip(rows, drawn.tolist(), strict=True):
                row.append(token)
            if all(self.eot_token_id in row or any(s in self._text(row) for s in stops if s) for row in rows):
                break
        return [postprocess_generated_text(self._text(row), stops, None) for row in rows]

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids[:ids.index(self.eot_token_id)] if self.eot_token_id in ids else ids)

    @torch.inference_mode()
    def _stream(self, prompts: list[list[int]], max_new_tokens: int, temperature: float, top_k: int | None,
                top_p: float | None) -> Iterator[Tensor]:
        """Yield the next ids `[B]`, with a whole forward pass for each: for models without caches."""
        rows = [list(p) for p in prompts]
        for _ in range(max_new_tokens):
            hidden = self._hidden(rows)
            last = torch.stack([h[len(row) - 1] for h, row in zip(hidden, rows, strict=True)])
            drawn = draw(self.model.unembed(last), temperature, top_k, top_p)
            yield drawn
            for row, token in zip(rows, drawn.tolist(), strict=True):
                row.append(token)

    def _hidden(self, rows: list) -> Tensor:
        """Return the hidden states `[B, longest, D]` of rows of ids; those beyond the end of a row mean nothing."""
        tokens = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self._device)
        return self.model.hidden(tokens)

    def _score(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return of N states `[N, D]` and ids the loss in nats and whether the id is the most likely: `[N]` each."""
        losses, greedy, rows = [], [], rows_at_once(len(self.model.embedding.weight))
        for h, t in zip(states.split(rows), targets.split(rows), strict=True):
            logits = self.model.unembed(h)
            losses.append(token_loss(logits, t, reduction="none").cpu())
            greedy.append((logits.argmax(-1) == t).cpu())
        return torch.cat(losses), torch.cat(greedy)


def build_tasks(changes: dict[str, dict], folders: list[str]) -> dict[str, ConfigurableTask]:
    """Return tasks of the harness by name, with no examples in the prompt.

    Args:
        changes: for each name, the entries of the harness's configuration to replace.
        folders: where those configurations are, below the harness's `tasks`.
    """
    root = Path(_TASK_FOLDER).parent
    with _quiet():
        manager = TaskManager(include_defaults=False, include_path=[str(root / f) for f in sorted(set(folders))])
        members = [{"task": name, **entries} for name, entries in changes.items()]
        tasks = manager.load({"group": "tasks", "task": members})["tasks"]
        for task in tasks.values():
            task.set_config("num_fewshot", 0)
    return {name: tasks[name] for name in changes}


def run_tasks(model: HarnessModel, tasks: dict[str, ConfigurableTask], limit: int | None = None) -> dict:
    """Return what the harness's `evaluate` returns, with the scores of every item under "samples".

    Args:
        limit: items per task, the first ones; None takes all.
    """
    with _quiet():
        return evaluate(model, {"tasks": tasks, "groups": {}, "group_map": {}}, limit=limit, bootstrap_iters=0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the harness from remarks on its own configurations, and its data sets from bars of their own."""
    logger, bars = getLogger("lm_eval"), not datasets.are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()
