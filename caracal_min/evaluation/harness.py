"""Tasks of lm-evaluation-harness, and the models of this package as its own model, `HFLM`, takes them.

A folder that `save_pretrained` wrote, with a tokenizer beside the model, needs nothing from here::

    import caracal_min.hf                                            # lets transformers find the class
    lm_eval.simple_evaluate("hf", "pretrained=runs/tiny/model", tasks=["hellaswag"])
"""

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ..data.tokenizers import save_tokenizer
from ..extras import missing
from ..language_model import LanguageModel
from ..model import Caracal
from ..precision import find_device, resolve_precision

try:
    import datasets
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks import __file__ as _TASK_FOLDER
    from transformers import AutoTokenizer
except ModuleNotFoundError as error:
    if error.name.partition(".")[0] not in ("accelerate", "datasets", "lm_eval", "transformers"):
        raise
    raise missing("evaluation on tasks", "lm-eval", "eval") from None
from ..hf import CaracalForCausalLM

__all__ = ["HARNESS_VERSION", "build_tasks", "harness_model", "run_tasks"]

HARNESS_VERSION = importlib.metadata.version("lm_eval")
"""Version of lm-evaluation-harness."""


def harness_model(model: LanguageModel, batch_size: int = 16, max_length: int = 2048, device: str = "auto",
                  precision: str = "auto") -> HFLM:
    """Return a Caracal or a baseline, with its tokenizer, as the harness's own model, which holds the same weights.

    Args:
        batch_size: sequences per forward pass; the logits of all their tokens are held at once.
        max_length: most tokens that the model sees at once, and no more than it was trained on; longer texts lose
            their beginning.
        device: where the model goes: "auto" (a GPU if there is one), "cpu", "cuda", ...
        precision: one of `precision.PRECISIONS`, of the forward pass; the softmax is taken in float32.

    Raises:
        ValueError: the model has no tokenizer; no such device or precision.
    """
    place = find_device(device)
    dtype = resolve_precision(precision, place)
    model = model.to(place)
    name = "max_positions" if isinstance(model, Caracal) else "max_position_embeddings"
    max_length = min(max_length, getattr(model.config, name, max_length))
    with TemporaryDirectory() as folder, _quiet():
        save_tokenizer(model.require_tokenizer(), folder)
        return HFLM(CaracalForCausalLM.from_caracal(model) if isinstance(model, Caracal) else model.model,
                    tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=batch_size, max_length=max_length,
                    softmax_dtype=torch.float32, mixed_precision_dtype=None if dtype == torch.float32 else dtype)


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


def run_tasks(model: HFLM, tasks: dict[str, ConfigurableTask], limit: int | None = None) -> dict:
    """Return what the harness's `evaluate` returns, with the scores of every item under "samples".

    Args:
        limit: items per task, the first ones; None takes all.

    Raises:
        ValueError: the model's max_length is shorter than an answer.
    """
    with _quiet():
        try:
            return evaluate(model, {"tasks": tasks, "groups": {}, "group_map": {}}, limit=limit, bootstrap_iters=0)
        except AssertionError as error:  # all that HFLM says
            raise ValueError(f"max_length={model.max_length} is shorter than an answer of these tasks, or one has no "
                             "token; raise max_length, or look at the tasks") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the harness's remarks on its own configurations, and the progress bars of its data sets."""
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
