"""The eight tasks of the paper's Table 2, as lm-evaluation-harness defines them, from local files or from the hub.

Prompts, answers and metrics are the harness's own configurations; a local file only takes the place of the data set.
Its rows are brought into the form that the hub has, one JSON object a line:

    file                  columns
    lambada_openai.jsonl  text; the last word is the target
    hellaswag.jsonl       query, choices, gold (0 to 3)
    arc_easy.jsonl        query ("Question: ...\\nAnswer:"), choices, gold; arc_challenge.jsonl alike
    winogrande.jsonl      sentence (with a _), option1, option2, answer ("1" or "2")
    boolq.jsonl           question, passage, answer (true or false)
    piqa.jsonl            goal, sol1, sol2, label (0 or 1)
    siqa.jsonl            context, question, answerA, answerB, answerC, label ("1" to "3")

One of these forms holds less than the hub's: SuperGLUE's BoolQ puts the title of the article and " -- " before each
passage, the file does not, and numbers made with it differ a little.

Read next: `table2`.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from datasets import Dataset

from .harness import ConfigurableTask, build_tasks

__all__ = ["TASKS", "TaskSource", "load_tasks", "read_rows", "require_tasks"]


def _hellaswag(row: dict) -> dict:
    """Cut the query where the harness's `process_docs` puts it together, at an unfinished last sentence."""
    label, _, text = row["query"].partition(": ")
    unfinished = re.fullmatch(r"(.*[.!?]) ([a-z][^.!?]*)", text, re.DOTALL)
    begun, rest = unfinished.groups() if unfinished else (text, "")
    return {"activity_label": label, "ctx_a": begun, "ctx_b": rest, "endings": row["choices"],
            "label": str(row["gold"])}


def _arc(row: dict) -> dict:
    labels = list("ABCDE"[:len(row["choices"])])
    question = row["query"].removeprefix("Question: ").removesuffix("\nAnswer:")
    return {"question": question, "choices": {"text": row["choices"], "label": labels},
            "answerKey": labels[row["gold"]]}


def _boolq(row: dict) -> dict:
    return {"question": row["question"], "passage": row["passage"], "label": int(row["answer"])}


@dataclass(frozen=True)
class TaskSource:
    """Where a task's rows come from when they are local, and how they become the hub's."""

    folder: str
    """Folder of the harness that holds the task's configuration."""
    file: str
    """Name of the local file."""
    columns: tuple[str, ...]
    """Columns of the local file."""
    to_hub: Callable[[dict], dict] = dict
    """Turns a local row into a row of the hub."""


TASKS = {
    "lambada_openai": TaskSource("lambada", "lambada_openai.jsonl", ("text",)),
    "hellaswag": TaskSource("hellaswag", "hellaswag.jsonl", ("query", "choices", "gold"), _hellaswag),
    "arc_easy": TaskSource("arc", "arc_easy.jsonl", ("query", "choices", "gold"), _arc),
    "arc_challenge": TaskSource("arc", "arc_challenge.jsonl", ("query", "choices", "gold"), _arc),
    "winogrande": TaskSource("winogrande", "winogrande.jsonl", ("sentence", "option1", "option2", "answer")),
    "boolq": TaskSource("super_glue/boolq", "boolq.jsonl", ("question", "passage", "answer"), _boolq),
    "piqa": TaskSource("piqa", "piqa.jsonl", ("goal", "sol1", "sol2", "label")),
    "social_iqa": TaskSource("siqa", "siqa.jsonl",
                             ("context", "question", "answerA", "answerB", "answerC", "label")),
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
        if not (path := Path(folder) / TASKS[name].file).is_file():
            raise FileNotFoundError(f"no file {path}; put {path.name} with columns "
                                    f"{', '.join(TASKS[name].columns)} there")


def read_rows(name: str, path: Path, limit: int | None = None) -> list[dict]:
    """Return the rows, the first `limit` or all, of a task's local file in the form that the harness reads.

    Raises:
        ValueError: a line that is no JSON object with the task's columns, or no line at all.
    """
    source, rows = TASKS[name], []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(islice(lines, limit), 1):
            try:
                row = json.loads(line)
                rows.append(source.to_hub({column: row[column] for column in source.columns}))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise ValueError(f"{path}, line {number}: {type(error).__name__} ({error}); each line must be a JSON "
                                 f"object with {', '.join(source.columns)}, as caracal_min.tasks says") from None
    if not rows:
        raise ValueError(f"{path} is empty; give one JSON object per line")
    return rows


def _local(name: str, folder: Path, limit: int | None) -> dict:
    """Return the part of a task's configuration that a local file replaces."""
    rows = Dataset.from_list(read_rows(name, folder / TASKS[name].file, limit))
    return {"custom_dataset": lambda **_: {"validation": rows}, "training_split": None,
            "validation_split": "validation", "test_split": None}
