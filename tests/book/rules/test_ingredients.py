"""What a notebook is made of: both packages, and of figures, checkers and records those that it names."""

import nbformat
import pytest

from caracal_book.rules.ingredients import files_of


def names(root, code):
    """Return the names of the files that a cell reaches, each with the folder that it is in."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    return {f"{path.parent.name}/{path.name}" for path in files_of(notebook, root)}


def test_the_model_counts_for_every_chapter_and_another_figure_for_none(root):
    found = names(root, "viz.clock(v, g)")
    assert {"caracal_min/spectral.py", "micro/model.safetensors", "caracal_book/records.py", "viz/clock.py",
            "viz/clock.js", "viz/figure.py", "viz/figure.css", "engine/loader.js"} <= found
    assert not {"viz/poke.py", "viz/poke.js", "runs/race.json", "exercises/wrap_around.py", "rules/cells.py"} & found


@pytest.mark.parametrize("code, record", [
    ("runs.load('race')", "race"), ("runs.load(f'learn_{task}')", "learn_mirror"),
    ("runs.load('learn_' + task)", "learn_recall_far"), ("import caracal_book.exercises.wrap_around", None)])
def test_a_record_counts_where_the_code_names_it_or_its_beginning(root, code, record):
    found = {name for name in names(root, code) if name.startswith("runs/") and name.endswith(".json")}
    assert (f"runs/{record}.json" in found) if record else not found
    assert "runs/micro_surgery.json" not in found


def test_each_chapter_reaches_its_own_checkers(root):
    for path in root.glob("notebooks/[01]*.ipynb"):
        reached = {file.stem for file in files_of(nbformat.read(path, 4), root) if file.parent.name == "exercises"}
        assert path.stem[3:] in reached and len(reached) < 8, path.stem
