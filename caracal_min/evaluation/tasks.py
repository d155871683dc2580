"""The eight tasks of the paper's Table 2, as lm-evaluation-harness defines them, from local files or from the hub.

Prompts, answers and metrics are the harness's own configurations; a local file only takes the place of the data set.
Its rows are brought into the form that the hub has, one JSON object a line::

    file                  columns
    lambada_openai.jsonl  text; the last word is the target
    hellaswag.jsonl       query, choices, gold (0 to 3)
    arc_easy.jsonl        query ("Question: ...\\nAnswer:"), choices, gold; arc_challenge.jsonl alike
    winogrande.jsonl      sentence (with a _), option1, option2, answer ("1" or "2")
    boolq.jsonl           question, passage, answer (true or false)
    piqa.jsonl            goal, sol1, sol2, label (0 or 1)
    siqa.jsonl            context, question, answerA, answerB, answerC, label ("1" to "3")

No text is empty or holds a NUL character, choices are 2 to 5, and a line has at most 1 MiB.

One of these forms holds less than the hub's: SuperGLUE's BoolQ puts the title of the article and " -- " before each
passage, the file does not, and numbers made with it differ a little.
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ..config import short_repr
from ..files import file_sha256
from ..language_model import LanguageModel, evaluating
from .harness import HARNESS_VERSION, ConfigurableTask, build_tasks, datasets, harness_model, run_tasks

__all__ = ["TASKS", "TaskSource", "evaluate_loaded", "evaluate_tasks", "format_table", "load_tasks", "read_rows",
           "require_tasks"]

_LONGEST_LINE = 1 << 20  # bytes; the longest of the eight files has 4,870
_CHOICES = "ABCDE"


def _lambada(row: dict) -> dict:
    if not all(row["text"].rpartition(" ")):
        raise ValueError("text has no space before its last word, which is the target")
    return row


def _hellaswag(row: dict) -> dict:
    """Cut the query where the harness's `process_docs` puts it together, at an unfinished last sentence."""
    if not all(re.sub(r"\[.*?\]", "", choice).strip() for choice in row["choices"]):
        raise ValueError("a choice is empty without what is in brackets, which the harness drops")
    label, _, text = row["query"].partition(": ")
    unfinished = re.fullmatch(r"(.*[.!?]) ([a-z][^.!?]*)", text, re.DOTALL)
    begun, rest = unfinished.groups() if unfinished else (text, "")
    return {"activity_label": label, "ctx_a": begun, "ctx_b": rest, "endings": row["choices"],
            "label": str(row["gold"])}


def _arc(row: dict) -> dict:
    labels = list(_CHOICES[:len(row["choices"])])
    question = row["query"].removeprefix("Question: ").removesuffix("\nAnswer:")
    return {"question": question, "choices": {"text": row["choices"], "label": labels},
            "answerKey": labels[row["gold"]]}


def _boolq(row: dict) -> dict:
    return {"question": row["question"], "passage": row["passage"], "label": int(row["answer"])}


def _winogrande(row: dict) -> dict:
    if "_" not in row["sentence"]:
        raise ValueError("sentence has no _, where the options go")
    return row


def _unchanged(row: dict) -> dict:
    return row


@dataclass(frozen=True)
class TaskSource:
    """Where a task's rows come from when they are local, and how they become the hub's."""

    folder: str
    """Folder of the harness that holds the task's configuration."""
    file: str
    """Name of the local file."""
    columns: dict[str, type | tuple]
    """Columns of the local file: `str` for a text, `list` for choices, `int` for the place of one, or the values."""
    to_hub: Callable[[dict], dict] = _unchanged
    """Turns a local row into a row of the hub."""


_QUESTION = {"query": str, "choices": list, "gold": int}

TASKS = {
    "lambada_openai": TaskSource("lambada", "lambada_openai.jsonl", {"text": str}, _lambada),
    "hellaswag": TaskSource("hellaswag", "hellaswag.jsonl", _QUESTION, _hellaswag),
    "arc_easy": TaskSource("arc", "arc_easy.jsonl", _QUESTION, _arc),
    "arc_challenge": TaskSource("arc", "arc_challenge.jsonl", _QUESTION, _arc),
    "winogrande": TaskSource("winogrande", "winogrande.jsonl",
                             {"sentence": str, "option1": str, "option2": str, "answer": ("1", "2")}, _winogrande),
    "boolq": TaskSource("super_glue/boolq", "boolq.jsonl",
                        {"question": str, "passage": str, "answer": (False, True)}, _boolq),
    "piqa": TaskSource("piqa", "piqa.jsonl", {"goal": str, "sol1": str, "sol2": str, "label": (0, 1)}),
    "social_iqa": TaskSource("siqa", "siqa.jsonl", {"context": str, "question": str, "answerA": str, "answerB": str,
                                                    "answerC": str, "label": ("1", "2", "3")}),
}
"""The tasks by the name that the harness gives them, in the order of Table 2."""


def load_tasks(names: Sequence[str], folder: str | Path | None = None,
               limit: int | None = None) -> dict[str, ConfigurableTask]:
    """Return the harness's tasks by name, without examples in the prompt.

    Args:
        names: some of `TASKS`.
        folder: holds the local files; None lets the harness load its data sets from the hub.
        limit: rows to read of each local file; None reads all.

    Raises:
        ValueError: no names or an unknown one, or a file whose rows are not as described above.
        FileNotFoundError: no such folder, or a task's file is not in it.

    Source: Caracal, Section 5.1, "Benchmarks".
    """
    require_tasks(names, folder)
    changes = {name: {} if folder is None else _local(name, Path(folder), limit) for name in names}
    return build_tasks(changes, [TASKS[name].folder for name in names])


def evaluate_tasks(model: LanguageModel, names: Sequence[str] = tuple(TASKS), folder: str | Path | None = None,
                   limit: int | None = None, batch_size: int = 16, max_length: int = 2048,
                   device: str = "auto", precision: str = "auto") -> dict[str, Any]:
    """Run tasks of the harness, without examples in the prompt, and return every metric.

    Args:
        names: some of `TASKS`.
        folder: local files, as described above; None takes the data sets of the hub.
        limit: items per task, the first ones; None takes all.
        batch_size, max_length, device, precision: as `harness.harness_model`.

    Returns:
        Only what JSON holds: harness (its version), limit, max_length, parameters, and tasks: by name items, version
        (of the harness's configuration), data (file and sha256, or the hub's path), and metrics: by name value and
        stderr.  Accuracies are from 0 to 1, perplexity is per target word.  The standard error is that of a mean over
        items, for perplexity carried over from the mean log-likelihood to first order; None for a single item.

    Raises:
        ValueError, FileNotFoundError: as `load_tasks` and `harness.harness_model`; a limit below 1; a max_length that
            is shorter than an answer.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}; give a number >= 1, or None for all items")
    return evaluate_loaded(model, load_tasks(names, folder, limit), folder, limit, batch_size, max_length, device,
                           precision)


def evaluate_loaded(model: LanguageModel, tasks: dict[str, ConfigurableTask], folder: str | Path | None = None,
                    limit: int | None = None, batch_size: int = 16, max_length: int = 2048, device: str = "auto",
                    precision: str = "auto") -> dict[str, Any]:
    """Run tasks that `load_tasks` has returned.  Further arguments, result and errors as `evaluate_tasks`."""
    with evaluating(model):
        harness = harness_model(model, batch_size, max_length, device, precision)
        found = run_tasks(harness, tasks, limit)
    results = {}
    for name, task in tasks.items():
        samples = found["samples"][name]
        metrics = {}
        for metric in samples[0]["metrics"]:
            value = float(found["results"][name][f"{metric},none"])
            error = _standard_error([float(sample[metric]) for sample in samples])
            if error is not None and metric == "perplexity":
                error *= value
            metrics[metric] = {"value": value, "stderr": error}
        data = {"hub": task.DATASET_PATH, "name": task.DATASET_NAME}
        if folder is not None:
            path = Path(folder) / TASKS[name].file
            data = {"file": path.name, "sha256": file_sha256(path)}
        results[name] = {"items": len(samples), "version": found["versions"][name], "data": data, "metrics": metrics}
    return {"harness": HARNESS_VERSION, "limit": limit, "max_length": harness.max_length,
            "parameters": model.num_parameters(), "tasks": results}


def format_table(results: dict[str, Any]) -> str:
    """Return what `evaluate_tasks` has returned as lines of text, one for each metric."""
    lines = [f"{'task':<18}{'metric':<12}{'value':>10}{'error':>10}"]
    for name, task in results["tasks"].items():
        for metric, found in task["metrics"].items():
            error = "-" if found["stderr"] is None else f"{found['stderr']:.4f}"
            lines.append(f"{name:<18}{metric:<12}{found['value']:>10.4f}{error:>10}")
    if results["limit"] is not None:
        lines.append(f"Only the first {results['limit']} items of each task were run: no result to compare.")
    return "\n".join(lines)


def require_tasks(names: Sequence[str], folder: str | Path | None = None) -> None:
    """Check names and files without reading them.  Arguments and errors as `load_tasks`."""
    for name in names:
        if name not in TASKS:
            raise ValueError(f"unknown task {name!r}; accepted: {', '.join(TASKS)}")
    if not names:
        raise ValueError(f"no task given; accepted: {', '.join(TASKS)}")
    if folder is None:
        return
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"no folder {folder}; give the folder that holds {TASKS[names[0]].file}")
    for name in names:
        _require_file(name, Path(folder) / TASKS[name].file)


def read_rows(name: str, path: Path, limit: int | None = None) -> list[dict]:
    """Return the rows, the first `limit` or all, of a task's local file in the form that the harness reads.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no line at all, or one that is no JSON object with the task's columns, as described above.
    """
    _require_file(name, path)
    source, rows = TASKS[name], []
    with open(path, "rb") as lines:
        for number in count(1):
            line = b"" if number - 1 == limit else lines.readline(_LONGEST_LINE + 1)
            if not line:
                break
            try:
                rows.append(source.to_hub(_read_row(line, source.columns)))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: {error}; each line must be a JSON object with "
                                 f"{', '.join(source.columns)}, see caracal_min.evaluation.tasks") from None
    if not rows:
        raise ValueError(f"{path} is empty; give one JSON object per line")
    return rows


def _require_file(name: str, path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; put {path.name} with columns {', '.join(TASKS[name].columns)} there")


def _read_row(line: bytes, columns: dict[str, type | tuple]) -> dict:
    """Return the columns of a line.  Raises ValueError or RecursionError if one is missing or not of its kind."""
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"it has more than {_LONGEST_LINE:,} bytes")
    row = json.loads(line.decode("utf-8"))
    if not isinstance(row, dict):
        raise ValueError(f"it is {short_repr(row)}")
    for column, kind in columns.items():
        if column not in row:
            raise ValueError(f"it lacks {column!r}")
        value = row[column]
        if kind is str:
            accepted, fits = "text, not empty and without NUL", _is_text(value)
        elif kind is list:
            accepted = f"a list of 2 to {len(_CHOICES)} texts, not empty and without NUL"
            fits = isinstance(value, list) and 2 <= len(value) <= len(_CHOICES) and all(map(_is_text, value))
        else:
            values = tuple(range(len(row["choices"]))) if kind is int else kind
            accepted = ", ".join(map(json.dumps, values))
            fits = any(type(value) is type(other) and value == other for other in values)
        if not fits:
            raise ValueError(f"{column} is {short_repr(value)}, accepted: {accepted}")
    return {column: row[column] for column in columns}


def _is_text(value: object) -> bool:
    """Whether it is a text that a tokenizer takes: half of a surrogate pair is no character."""
    return isinstance(value, str) and value.strip() != "" and not re.search("[\0\ud800-\udfff]", value)


def _local(name: str, folder: Path, limit: int | None) -> dict:
    """Return the part of a task's configuration that a local file replaces."""
    rows = datasets.Dataset.from_list(read_rows(name, folder / TASKS[name].file, limit))
    return {"custom_dataset": lambda **_: {"validation": rows}, "training_split": None,
            "validation_split": "validation", "test_split": None}


def _standard_error(values: list[float]) -> float | None:
    """Standard error of the mean, with the unbiased variance; None for one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
