"""The stills are what the scripts draw today: the words, colours and sizes of each figure that the built pages show."""

from xml.etree import ElementTree

import pytest
from draw_stills import STILLS, draw, figures_in

pytestmark = [pytest.mark.browser, pytest.mark.built]

OWN = ("training_run", "remember")  # their words are computed where the page is built, and another machine has others
AGAIN = "run python tools/draw_stills.py, and look at what has changed"


def essence(svg: str) -> tuple[str, list[tuple[str, ...]], list[float]]:
    """Return what another typeface does not change: the words, the marks by kind and colour, and the marks' sizes."""
    marks = [node for node in ElementTree.fromstring(svg).iter() if node.tag[node.tag.index("}") + 1:] != "text"]
    looks = [(node.tag.rpartition("}")[2], node.get("fill", ""), node.get("stroke", "")) for node in marks]
    words = "".join("".join(ElementTree.fromstring(svg).itertext()).split())
    return words, looks, [float(node.get(side, 0)) for node in marks[2:] for side in ("width", "height", "r")]


def difference(committed: str, drawn: str) -> str:
    """Say in what two stills differ, or nothing."""
    (words, looks, sizes), (new_words, new_looks, new_sizes) = essence(committed), essence(drawn)
    if words != new_words:
        at = next((k for k, pair in enumerate(zip(words, new_words, strict=False)) if pair[0] != pair[1]), 0)
        return f"words: …{words[max(0, at - 20):at + 20]}… is now …{new_words[max(0, at - 20):at + 20]}…"
    if looks != new_looks:
        return f"{len(looks)} marks, now {len(new_looks)}, of other colours"
    off = [(a, b) for a, b in zip(sizes, new_sizes, strict=True) if abs(a - b) > 2 + 0.1 * max(a, b)]
    return f"sizes: {off[:5]}" if off else ""


def test_every_still_is_what_its_script_draws(browser, book):
    figures = {key: figure for path in book.rglob("*.html")
               for key, figure in figures_in(path.read_text(encoding="utf-8")).items()}
    stills = {path.stem: path.read_text(encoding="utf-8") for path in STILLS.glob("*.svg")}
    assert len(figures) > 20
    assert [key for key in figures.keys() ^ stills.keys() if not key.startswith(OWN)] == [], AGAIN
    problems = {key: said for key, figure in figures.items() if key in stills
                and (said := difference(stills[key], draw(browser, figure)))}
    assert problems == {}, AGAIN
