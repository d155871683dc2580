"""The claims of the paper and what we found: book/claims.yml, read and checked.

A cell that cannot test what it is there for, on a machine without some package or network, prints a line::

    not tested here: why

for its reader.  On a page of the book there may be none: `untested` finds them, and the build stops.

Nothing in this module needs Sphinx.  `claims` turns the ledger into a table with links.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from .cells import STEM
from .printed_values import Problem, cell_tags, printed_text

NOT_TESTED = "not tested here"
VERDICTS = ("holds", "holds with a caveat of wording", "holds with a caveat of substance", "does not hold",
            "not tested at this scale")
_ASSERT = re.compile(r"^\s*assert\b", re.MULTILINE)
_TAG = re.compile(r"claim-(\d+)")
_BOX = re.compile(r"(?:^>.*\n?)+", re.MULTILINE)
_LINK = re.compile(r"\[claim\s+(\d+)\]\(")
_IN_A_BOX = {"holds": r"\bholds?\b", "does not hold": r"\bdoes not\b", VERDICTS[-1]: VERDICTS[-1]}


@dataclass(frozen=True)
class Claim:
    """One row of the ledger: where the paper says what, our verdict, what we found, in which notebook."""

    id: int
    paper: str
    says: str
    verdict: str
    found: str
    notebook: str

    def __post_init__(self):
        if type(self.id) is not int or self.id < 1:
            raise ValueError(f"claim id {self.id!r}: give a whole number from 1 on")
        for field in fields(self)[1:]:
            text = getattr(self, field.name)
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"claim {self.id}: {field.name} is {text!r}; give a text")
        if self.verdict not in VERDICTS:
            raise ValueError(f"claim {self.id}: verdict '{self.verdict}' is not one of: {', '.join(VERDICTS)}")
        if not STEM.fullmatch(self.notebook):
            raise ValueError(f"claim {self.id}: notebook '{self.notebook}'; give a name like 04_causal_convolution")


def read_ledger(path: Path) -> list[Claim]:
    """Read claims.yml, in the order of the ids; ValueError in one line for anything that does not fit."""
    return parse_ledger(yaml.safe_load(path.read_text(encoding="utf-8")))


def parse_ledger(entries: object) -> list[Claim]:
    if not isinstance(entries, list):
        raise ValueError(f"the ledger is a {type(entries).__name__}; give a list of claims")
    names = [field.name for field in fields(Claim)]
    claims: dict[int, Claim] = {}
    for entry in entries:
        if not isinstance(entry, dict) or sorted(entry) != sorted(names):
            raise ValueError(f"a claim has the keys {', '.join(names)}; given: {entry!r}")
        claim = Claim(**entry)
        if claim.id in claims:
            raise ValueError(f"claim {claim.id} is entered twice; give each claim an id of its own")
        claims[claim.id] = claim
    return [claims[number] for number in sorted(claims)]


def claim_tags(cell: dict) -> list[int]:
    """Return the ids of the claims that a cell asserts, from its tags `claim-8`."""
    return [int(match[1]) for tag in cell_tags(cell) if (match := _TAG.fullmatch(tag))]


def asserts_something(cell: dict) -> bool:
    """Whether an `assert` stands in a code cell."""
    return _ASSERT.search(cell["source"]) is not None


def check_claims(claims: list[Claim], notebooks: Mapping[str, dict]) -> list[tuple[str, Problem]]:
    """Compare ledger and notebooks (by stem): each claim has one asserting cell, each tag names a claim.

    Returns pairs of a notebook's stem and a problem; the cell is -1 where a whole notebook is meant.
    """
    problems = []
    cells: dict[int, list[tuple[str, int]]] = {}
    for stem, notebook in notebooks.items():
        for index, cell in enumerate(notebook["cells"]):
            for number in claim_tags(cell):
                cells.setdefault(number, []).append((stem, index))
                if not asserts_something(cell):
                    problems.append((stem, Problem(index, f"the cell tagged claim-{number} asserts nothing")))
    known = {claim.id: claim for claim in claims}
    for number, places in cells.items():
        for stem, index in places:
            if number not in known:
                problems.append((stem, Problem(index, f"the tag claim-{number} names no claim of claims.yml")))
            elif known[number].notebook != stem:
                problems.append((stem, Problem(
                    index, f"the tag claim-{number} belongs in the notebook '{known[number].notebook}'")))
    for claim in claims:
        here = [place for place in cells.get(claim.id, []) if place[0] == claim.notebook]
        if len(here) != 1:
            problems.append((claim.notebook, Problem(
                -1, f"claim {claim.id} needs exactly one cell tagged claim-{claim.id} here; there are {len(here)}")))
    return problems


def check_boxes(claims: list[Claim], notebooks: Mapping[str, dict]) -> list[tuple[str, Problem]]:
    """Compare the verdict in each box of a notebook, a quotation that links to claims, with the ledger's.

    After "What we found:" a box says "caveat of wording" or "caveat of substance" where one of its claims holds with
    that caveat and nowhere else, "does not hold", "not tested at this scale", or "holds".
    """
    known = {claim.id: claim.verdict for claim in claims}
    problems = []
    for stem, notebook in notebooks.items():
        for index, cell in enumerate(notebook["cells"]):
            for box in _BOX.findall(cell["source"]) if cell["cell_type"] == "markdown" else []:
                numbers = sorted({int(number) for number in _LINK.findall(box)} & known.keys())
                said = " ".join(box.replace("\n>", " ").split()).rpartition("What we found:")[2]
                caveats = set(re.findall(r"caveat(?: of \w+)?", said))
                expected = {verdict.removeprefix("holds with a ") for number in numbers
                            if "caveat" in (verdict := known[number])}
                others = {known[number] for number in numbers if "caveat" not in known[number]}
                missing = sorted(verdict for verdict in others if re.search(_IN_A_BOX[verdict], said) is None)
                if numbers and (caveats != expected or missing):
                    verdicts = ", ".join(f"claim {number}: {known[number]}" for number in numbers)
                    problems.append((stem, Problem(index, f"the box says {', '.join(sorted(caveats)) or 'no caveat'}"
                                                   f"{''.join(f', and not {text!r}' for text in missing)}; "
                                                   f"the ledger has {verdicts}")))
    return problems


def untested(notebook: dict) -> list[Problem]:
    """Return a problem for each line of an executed notebook that says that something was not tested."""
    return [Problem(index, f"{_subject(cell)} prints '{line.strip()}'; the book is built where it is tested")
            for index, cell in enumerate(notebook["cells"])
            for line in printed_text(cell).splitlines() if line.strip().startswith(NOT_TESTED)]


def _subject(cell: dict) -> str:
    claims = " and ".join(f"claim {number}" for number in claim_tags(cell))
    return f"the cell of {claims}" if claims else "the cell"
