"""The paper's Tables 7 and 8: how long six models of the size Tiny train, and how fast, by context length.

The paper's numbers are in `table7.json`.  There, "pure" is its Caracal without windows, "hybrid" its default.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np

__all__ = ["CONTEXT", "paper_seconds", "paper_tokens_per_second"]


@cache
def _paper() -> dict:
    return json.loads((Path(__file__).parent / "table7.json").read_text())


CONTEXT = tuple(_paper()["context"])
"""Context lengths of the columns, in tokens."""


def paper_seconds() -> dict[str, np.ndarray]:
    """Return for each model the seconds of training on ten billion tokens, `(6,)`, int64, one for each of `CONTEXT`.

    Source: Caracal, Table 7; eight GPUs together.
    """
    return {name: np.array(row) for name, row in _paper()["seconds"].items()}


def paper_tokens_per_second() -> dict[str, np.ndarray]:
    """Return for each model the tokens trained on in a second, `(6,)`, int64, one for each of `CONTEXT`.

    Source: Caracal, Table 8; eight GPUs together.
    """
    return {name: np.array(row) for name, row in _paper()["tokens_per_second"].items()}
