"""A chapter that does not exist yet is not spoken of as if it did."""

import re

import pytest

from caracal_book.rules.cells import number_of

_MENTION = re.compile(r"\b(?:[Cc]hapters?\s+(\d+)|[Ii]nvestigations?\s+([A-Z])\b)")
_SAID = re.compile(r"not yet written|does not exist yet|is planned", re.IGNORECASE)


def promised(text: str, written: set[str]) -> list[str]:
    """The sentences that name a chapter which is not written, and do not say so."""
    sentences = re.split(r"(?<=[.?!;])\s|\n\s*\n", text)
    return [" ".join(sentence.split()) for sentence in sentences if not _SAID.search(sentence)
            and {number or letter for number, letter in _MENTION.findall(sentence)} - written]


@pytest.mark.parametrize("text, count", [
    ("Chapter 3 shows it, and investigation A.", 0), ("See investigation B.", 1),
    ("Chapter 9 shows it.", 1), ("Chapter 9 is planned\nand not yet written.", 0),
    ("As chapter 3 says. But chapter\n9 asks more.", 1), ("Chapter 9 is planned. Chapter 9 asks more.", 1),
])
def test_a_promise_is_found(text, count):
    assert len(promised(text, {"3", "A"})) == count


def test_no_page_speaks_of_a_chapter_that_is_not_there(root, notebooks):
    written = {number_of(stem) for stem in notebooks}
    texts = {path.name: path.read_text(encoding="utf-8") for path in (*root.glob("*.md"), *root.glob("book/**/*.md"))}
    texts |= {stem: "\n\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
              for stem, notebook in notebooks.items()}
    assert len(texts) > 20
    assert {name: found for name, text in texts.items() if (found := promised(text, written))} == {}
