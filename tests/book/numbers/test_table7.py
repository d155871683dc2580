"""Tables 7 and 8 against the paper's source."""

import re

import pytest

from caracal_book.numbers import table7

NAMES = {"Caracal w/o SWA": "pure", "Caracal (Default)": "hybrid"}


@pytest.mark.parametrize("label, printed", [
    ("tab:training_time", table7.paper_seconds), ("tab:throughput", table7.paper_tokens_per_second),
])
def test_the_numbers_are_the_papers(label, printed, root, report_missing):
    tex = root.parent / "shared" / "paper" / "caracal.tex"
    if not tex.is_file():
        report_missing("no ../shared/paper/caracal.tex beside the checkout", shared=True)
    tex = tex.read_text(encoding="utf-8")
    body = tex[tex.index(rf"\label{{{label}}}"):]
    body = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body[:body.index(r"\end{tabular}")]).replace(",", "")
    found = {}
    for line in body.splitlines():
        name, *cells = (cell.strip(" \\") for cell in line.split("&"))
        if len(cells) == 6:
            found[NAMES.get(name, name)] = [int(cell) for cell in cells]
    assert list(table7.CONTEXT) == found.pop("Model")
    rows = printed()
    assert len(found) == 6 and {name: list(row) for name, row in rows.items()} == found
