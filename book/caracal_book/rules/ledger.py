"""The claims of the paper and what we found: book/claims.yml, read and checked.

A cell that cannot test what it is there for, on a machine without some package or network, prints a line::

    not tested here: why

for its reader.  On a page of the book there may be none: `untested` finds them, and the build stops.

Nothing in this module needs Sphinx.  `book/claims.md` turns the ledger into a table with links.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from .cells import STEM
from .printed_values import Problem, cell_tags, printed_text

NOT_TESTED = "not tested here"
CONDITIONAL = "holds under a condition"
LITERATURE = "where_it_stands"  # the page that a row rests on where no computation can decide; it needs no cell
VERDICTS = {  # and what they mean
    "holds": "a cell asserts the statement as it stands",
    "holds in substance, wording loose": "what is meant stands; a word, or a reason that is given, says too much",
    CONDITIONAL: "it stands where the sentence below the verdict is true, and not further",
    "not shown on text": "it is true of a task that was made for it, and our trained models of text do not show it",
    "not reproduced": "our models, or a count of operations, do not agree with it and do not refute it",
    "does not hold": "a cell, or an earlier publication, contradicts the statement or one of its halves",
    "not tested at this scale": "it is about models or data larger than a build of this book can train, "
                                "and the paper's own numbers, with their errors, do not settle it",
}
_ASSERT = re.compile(r"^\s*assert\b", re.MULTILINE)
_TAG = re.compile(r"claim-(\d+)")
_CLAIM = re.compile(r"\bclaim (\d+)", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?;]{10,100}\.")
_MEASURED = re.compile(r"\{measured\}`[^`]*`")
_HEDGE = re.compile(r"\b(?:may|might|could|can|perhaps|probably|likely|seems?|mostly|usually|often|sometimes)\b")


@dataclass(frozen=True)
class Claim:
    """One row of the ledger: where the paper says what, our verdict, what we found, in which notebook.

    `condition` is the sentence that says when a statement holds under a condition; other verdicts have none.
    `found` is short, and `more` is what a reader unfolds.
    """

    id: int
    paper: str
    says: str
    verdict: str
    found: str
    notebook: str
    topic: str
    condition: str = ""
    more: str = ""

    def __post_init__(self):
        if type(self.id) is not int or self.id < 1:
            raise ValueError(f"claim id {self.id!r}: give a whole number from 1 on")
        for field in fields(self)[1:-2]:
            text = getattr(self, field.name)
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"claim {self.id}: {field.name} is {text!r}; give a text")
        if self.verdict not in VERDICTS:
            raise ValueError(f"claim {self.id}: verdict '{self.verdict}' is not one of: {', '.join(VERDICTS)}")
        if (self.verdict == CONDITIONAL) != bool(self.condition):
            raise ValueError(f"claim {self.id}: verdict '{self.verdict}', condition '{self.condition}'; a condition "
                             f"goes with '{CONDITIONAL}', and with no other verdict")
        if self.condition and (not _SENTENCE.fullmatch(self.condition) or _HEDGE.search(self.condition)):
            raise ValueError(f"claim {self.id}: condition '{self.condition}'; give one sentence of at most 100 letters "
                             "that says when it holds, without a 'may' or 'usually'")
        if len(_MEASURED.sub("0", self.found).split()) > 45:
            raise ValueError(f"claim {self.id}: found is longer than 45 words; the rest belongs into more")
        if self.notebook != LITERATURE and not STEM.fullmatch(self.notebook):
            raise ValueError(f"claim {self.id}: notebook '{self.notebook}'; give a name like 04_causal_convolution")


def read_ledger(path: Path) -> list[Claim]:
    """Read claims.yml, in its order; ValueError in one line for anything that does not fit."""
    return parse_ledger(yaml.safe_load(path.read_text(encoding="utf-8")))


def parse_ledger(entries: object) -> list[Claim]:
    if not isinstance(entries, dict) or not all(isinstance(rows, list) for rows in entries.values()):
        raise ValueError(f"the ledger is {entries!r:.60}; give topics, each with a list of claims")
    names, optional = [field.name for field in fields(Claim)[:-3]], {"condition", "more"}
    claims: dict[int, Claim] = {}
    for topic, entry in ((topic, entry) for topic, rows in entries.items() for entry in rows):
        if not isinstance(entry, dict) or {*entry} | optional != {*names} | optional:
            raise ValueError(f"a claim has the keys {', '.join(names)}, maybe condition and more; given: {entry!r}")
        claim = Claim(**entry, topic=topic)
        if claim.id in claims:
            raise ValueError(f"claim {claim.id} is entered twice; give each claim an id of its own")
        claims[claim.id] = claim
    return list(claims.values())


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
    problems, known, cells = [], {claim.id: claim for claim in claims}, Counter()
    for stem, notebook in notebooks.items():
        for index, cell in enumerate(notebook["cells"]):
            for number in claim_tags(cell):
                cells[number, stem] += 1
                if number not in known:
                    problems.append((stem, Problem(index, f"the tag claim-{number} names no claim of claims.yml")))
                elif known[number].notebook != stem:
                    problems.append((stem, Problem(
                        index, f"the tag claim-{number} belongs in the notebook '{known[number].notebook}'")))
                elif not asserts_something(cell):
                    problems.append((stem, Problem(index, f"the cell tagged claim-{number} asserts nothing")))
    for claim in claims:
        if claim.notebook != LITERATURE and (count := cells[claim.id, claim.notebook]) != 1:
            problems.append((claim.notebook, Problem(
                -1, f"claim {claim.id} needs exactly one cell tagged claim-{claim.id} here; there are {count}")))
    return problems


def check_boxes(claims: list[Claim], notebooks: Mapping[str, dict]) -> list[tuple[str, Problem]]:
    """Compare the verdicts in each box of a notebook, a quotation that names claims, with the ledger's.

    After "What we found:" a box says the verdict of each of its claims and no other, and a paragraph that names claims
    says no other than theirs; a plain "holds" may stand anywhere.
    """
    known = {claim.id: claim.verdict for claim in claims}
    problems = []
    for stem, notebook in notebooks.items():
        for index, cell in enumerate(notebook["cells"]):
            for part in re.split(r"\n\s*\n", cell["source"]) if cell["cell_type"] == "markdown" else []:
                text = " ".join(part.replace("\n>", " ").split())
                numbers = sorted({int(number) for number in _CLAIM.findall(text)} & known.keys())
                said, right = _verdicts_in(text.rpartition("What we found:")[2]), {known[number] for number in numbers}
                if numbers and (said - right - {"holds"} or part.startswith(">") and right - said):
                    verdicts = ", ".join(f"claim {number}: {known[number]}" for number in numbers)
                    words = " and ".join(sorted(said)) or "no verdict"
                    problems.append((stem, Problem(index, f"the text says {words}; the ledger has {verdicts}")))
    return problems


def _verdicts_in(text: str) -> set[str]:
    said = set()
    for verdict in sorted(VERDICTS, key=len, reverse=True):  # "holds" stands in others
        text, times = re.subn(rf"\b{verdict.replace('holds', 'holds?')}\b", "", text)
        said |= {verdict} if times else set()
    return said


def slug(verdict: str) -> str:
    """Return a verdict as the name of a class of the pages."""
    return verdict.replace(",", "").replace(" ", "-")


def untested(notebook: dict) -> list[Problem]:
    """Return a problem for each line of an executed notebook that says that something was not tested."""
    return [Problem(index, f"{_subject(cell)} prints '{line.strip()}'; the book is built where it is tested")
            for index, cell in enumerate(notebook["cells"])
            for line in printed_text(cell).splitlines() if line.strip().startswith(NOT_TESTED)]


def _subject(cell: dict) -> str:
    claims = " and ".join(f"claim {number}" for number in claim_tags(cell))
    return f"the cell of {claims}" if claims else "the cell"
