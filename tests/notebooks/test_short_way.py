"""The short way on the landing page: what it names exists, and takes as long to read as the page says."""

import re

WORDS_A_MINUTE = 200


def sections(notebook) -> dict[str, int]:
    """Words of each section before the exercises, outside folds; "" is the opening."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = text.partition("\n## Exercises")[0]
    text = re.sub(r"<details>.*?</details>|<!--.*?-->", "", text, flags=re.S)
    parts = re.split(r"^## (.*)$", "## \n" + re.sub(r"\$\$?.+?\$\$?|`[^`]*`", "X", text, flags=re.S), flags=re.M)
    return {title: len(words.split()) for title, words in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_short_way_takes_ninety_minutes(root, notebooks):
    page = (root / "index.md").read_text(encoding="utf-8")
    way = page.partition("**Ninety minutes**")[2].partition("\n**")[0]
    minutes = 0.0
    for stem, what in re.findall(r"^\d+\. \[.*\]\(notebooks/(\w+)\.ipynb\)(.*)$", way, flags=re.M):
        words = sections(notebooks[stem])
        if "opening" in what:  # and end: of the other sections, those in italics
            words = {title: words[title] for title in ("", *re.findall(r"\*(.+?)\*", what), [*words][-1])}
        minutes += sum(words.values()) / WORDS_A_MINUTE
    assert 85 < minutes < 95
