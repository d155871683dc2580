"""The page of promises: its tests exist, and its table is that of the fault runs, in which every promise held."""

import json
import re

LINK = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")


def test_every_test_on_the_page_exists(root):
    text = (root / "book" / "promises.md").read_text(encoding="utf-8")
    places = LINK.findall(text)
    assert len(places) > 25 and len(places) == text.count("`test_")
    assert [f"{file}::{name}" for name, file in places if not (root / file).is_file() or not re.search(
        rf"^def {name}\(", (root / file).read_text(encoding="utf-8"), re.MULTILINE)] == []


def test_its_table_is_that_of_the_fault_runs_in_which_every_promise_held(root):
    runs = json.loads((root / "book" / "fault_runs.json").read_text(encoding="utf-8"))
    assert [name for name, run in runs.items() if run["held"] < run["tried"] or not run["code"]["clean"]] == []
    rows = [f"| {run['what']} | {run['tried']} | {run['held']} | {run['seed']} | {run['code']['commit'][:7]} |"
            for run in runs.values()]
    text = (root / "book" / "promises.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| .* \|$", text, re.MULTILINE)[1:] == rows, "\n".join(["its rows are to be:", *rows])
