"""Table 2: the paper's numbers against its source, and the error of a score."""

import math
import re

import pytest
import torch

from caracal_book.numbers import table2
from caracal_book.numbers.table2 import paper_rows, standard_error
from caracal_min import Caracal


def rows_of(tex):
    """The rows of the table labelled tab:scalability in the paper's source."""
    body = tex[tex.index(r"\label{tab:scalability}"):]
    body = body[:body.index(r"\end{tabular}")]
    size, rows = None, []
    columns = ["LMB ppl", *table2.ITEMS, "Avg"]
    for line in body.splitlines():
        size = (re.search(r"\\multirow\{5\}\{\*\}\{(\w)\}", line) or [None, size])[1]
        plain = re.sub(r"\\textbf\{([^}]*)\}", r"\1", line)
        found = re.search(r"& (\w+)\((\d+)M\) & (.*?) *\\\\", plain)
        if found:
            numbers = [float(n) for n in found[3].split("&")]
            rows.append({"size": size, "model": found[1], "millions": int(found[2]),
                         **dict(zip(columns, numbers, strict=True))})
    return rows


def test_the_papers_numbers_are_those_of_its_source(root, report_missing):
    tex = root.parent / "shared" / "paper" / "caracal.tex"
    if not tex.is_file():
        report_missing("no ../shared/paper/caracal.tex beside the checkout", shared=True)
    assert rows_of(tex.read_text()) == table2._paper()


def test_the_nearest_size_stands_beside():
    for preset, size in (("nano", "T"), ("tiny", "T"), ("small", "S"), ("medium", "M"), ("large", "L")):
        with torch.device("meta"):
            rows = paper_rows(Caracal.from_preset(preset).num_parameters())
        assert [r["model"] for r in rows] == ["Llama", "Mamba", "Mamba2", "Jamba", "Caracal"]
        assert {r["size"] for r in rows} == {size}


@pytest.mark.parametrize("score, items", [(25, 500), (50, 8), (0, 10), (100, 10), (12.5, 16)])
def test_the_standard_error_is_the_spread_of_drawn_scores(score, items):
    p = score / 100
    chance = [math.comb(items, k) * p**k * (1 - p)**(items - k) for k in range(items + 1)]
    scores = [100 * k / items for k in range(items + 1)]
    variance = sum(c * (s - score)**2 for c, s in zip(chance, scores, strict=True))
    assert math.isclose(standard_error(score, items), math.sqrt(variance), abs_tol=1e-9)
