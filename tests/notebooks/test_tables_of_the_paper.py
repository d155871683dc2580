"""The numbers of the paper that investigation C types in: its tables 3 to 6 against the paper's source."""

import ast
import re

import pytest

CHAPTER = "c_reading_tables"


@pytest.fixture(scope="module")
def typed(notebooks):
    """The dictionaries of numbers that the cells of investigation C assign, by name."""
    found = {}
    for cell in notebooks[CHAPTER].cells:
        if cell.cell_type == "code" and "setup" not in cell.metadata.get("tags", []):
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    name, value = node.targets[0].id, node.value
                    if name == "HYBRID":
                        found[name] = ast.literal_eval(value.args[0].args[1])
                    elif name in ("TABLE_3", "TABLE_4", "TABLE_5", "TABLE_6", "CARACAL"):
                        found[name] = ast.literal_eval(value)
    return found


@pytest.fixture(scope="module")
def printed(root, report_missing):
    """The rows of a table of the paper, first cell to the numbers after it."""
    tex = root.parent / "shared" / "paper" / "caracal.tex"
    if not tex.is_file():
        report_missing("no ../shared/paper/caracal.tex beside the checkout", shared=True)
    tex = re.sub(r"\\textbf\{([^}]*)\}", r"\1", tex.read_text(encoding="utf-8")).replace(r"\&", "and")

    def rows(label):
        body = tex[tex.index(rf"\label{{{label}}}"):]
        found = {}
        for line in body[:body.index(r"\end{tabular}")].splitlines():
            name, *cells = (cell.strip(" \\") for cell in line.split("&"))
            if cells and all(re.fullmatch(r"[\d.]+", cell) for cell in cells):
                found[name] = [float(cell) for cell in cells]
        return found

    return rows


def test_table_3(typed, printed):
    rows = printed("tab:broader_comparison")
    own = rows.pop("Caracal (Default)")
    assert typed["HYBRID"] == own[1:-1] and own[-1] == 46.62
    averages = {name: row[-1] for name, row in rows.items()}
    averages["without windows"] = averages.pop("Caracal w/o SWA")
    assert typed["TABLE_3"] == averages and len(averages) == 11


def test_table_4(typed, printed):
    rows = printed("tab:long_context")
    assert typed["TABLE_4"] == {name: tuple(row[:2]) for name, row in rows.items()} and len(rows) == 5


def test_table_5(typed, printed):
    rows = {name: row[0] for name, row in printed("tab:ablation").items()}
    assert rows.pop("Full Model (Default)") == 49.01
    names = {"w/o SWA": "without windows", "w/o SWA and PC": "without windows and pre-convolution",
             "with PE": "with positions", "SSLP": "single-stage gate"}
    assert typed["TABLE_5"] == {names[name]: average for name, average in rows.items()}


def test_table_6(typed, printed):
    rows = {name.removesuffix(" (Default)"): row[0] for name, row in printed("tab:parameter").items()}
    assert typed["TABLE_6"] == rows and len(rows) == 4
