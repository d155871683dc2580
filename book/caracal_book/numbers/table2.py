"""The paper's Table 2: eight tasks, nine columns and their average, and the error of a score.

The paper writes "acc" everywhere.  From the size of its numbers (a model of 64M with 31 on HellaSwag and 25 on ARC-c)
the usual convention is inferred: `acc_norm`, the accuracy after dividing by the length of the answer, for HellaSwag and
ARC-c, `acc` for the others.

The paper's numbers are in `table2.json`.
"""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["COMMONEST", "ITEMS", "error_of_average", "paper_rows", "standard_error"]

ITEMS = {"LMB acc": 5153, "Hella": 10042, "ARC-e": 2376, "ARC-c": 1172, "Wino": 1267, "BoolQ": 3270, "PIQA": 1838,
         "SIQA": 1954}
"""Items behind each of the accuracies that Avg is the mean of."""

COMMONEST = {"Hella": (132, 2584), "ARC-e": (135, 633), "ARC-c": (144, 311), "Wino": (252, 639), "BoolQ": (315, 2033),
             "PIQA": (253, 928), "SIQA": (175, 657)}
"""Items whose right answer is the most frequent one, of the first 500 and of all: the baseline of a constant answer.

An answer is its place among those offered, and in BoolQ "yes".
"""


def paper_rows(parameters: int) -> list[dict[str, Any]]:
    """Return the paper's rows of the size, T, S, M or L, whose Caracal is nearest in parameters (as a ratio).

    Each has size, model, millions (of parameters) and one number per column, accuracies in per cent.

    Source: Caracal, Table 2.
    """
    own = [row for row in _paper() if row["model"] == "Caracal"]
    nearest = min(own, key=lambda row: abs(math.log(row["millions"] * 1e6 / parameters)))
    return [row for row in _paper() if row["size"] == nearest["size"]]


def standard_error(score: float, items: int) -> float:
    """Return the standard error of a score in percentage points: of a binomial proportion, sqrt(p (1 - p) / n).

    Args:
        score: accuracy, in per cent.
        items: answered, and treated as a random sample.

    Raises:
        ValueError: no items, or a score outside 0 to 100.
    """
    if items < 1 or not 0 <= score <= 100:
        raise ValueError(f"a score of {score} on {items} items; give 0 to 100 per cent, on 1 item or more")
    return math.sqrt(score * (100 - score) / items)


def error_of_average(row: dict[str, Any]) -> float:
    """Return the standard error, in percentage points, of the mean of a row's eight accuracies.

    The tasks share no items, so their variances add.

    Args:
        row: accuracies in per cent by task, as `paper_rows` returns them, each on all `ITEMS` of its task.
    """
    return math.hypot(*(standard_error(row[task], items) for task, items in ITEMS.items())) / len(ITEMS)


@cache
def _paper() -> list[dict[str, Any]]:
    return json.loads((Path(__file__).parent / "table2.json").read_text())["rows"]
