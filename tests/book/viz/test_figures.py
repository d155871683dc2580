"""Figures: self-contained, reproducible, with a still and words, safe against markup in their data, also a widget."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import torch

from caracal_book import viz
from caracal_book.rules.drawings import on_dark, with_stills, without_ground

V = torch.tensor([1.0, -0.5, 0.25, 2.0])
G = torch.tensor([0.5, 1.0, -1.0, 0.3])
SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in Path(viz.__file__).parent.glob("*.js")}
DRAWING = SOURCES.pop("drawing")


class Elements(HTMLParser):
    """Collect the start tags, and the text of scripts, the way a browser splits them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self._open = [], [], None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data):
        if self._open == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag):
        self._open = None

    def first(self, tag):
        return next(attrs for name, attrs in self.tags if name == tag)


def still_of(figure):
    return unquote(Elements(figure.to_html()).first("img")["src"].removeprefix("data:image/svg+xml,")).replace("'", '"')


def test_a_still_keeps_every_character():
    hard = "l'été à 100 % \u2212 #3 & \"so\" <b> ^|[]{}\\"
    svg = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", label=hard)
    svg.text = hard
    read = ElementTree.fromstring(still_of(viz.Figure("poke", {}, ElementTree.tostring(svg, "unicode"), "x")))
    assert read.text == read.get("label") == hard


def test_html_needs_nothing_from_elsewhere():
    html = viz.poke(V, G).to_html()
    text = html.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttpRequest|import\(|^import ", text, re.M)
    elements = Elements(html)
    assert [tag for tag, attrs in elements.tags if tag in ("link", "iframe")] == []
    assert elements.first("script") == {"type": "module"}
    assert elements.first("img").get("src", "data:").startswith("data:")


def test_html_is_reproducible_and_the_id_follows_the_content():
    figure, same = viz.poke(V, G), viz.poke(V.clone(), G.double())
    assert figure.to_html() == same.to_html()
    others = [viz.poke(V, G, n=5), viz.poke(V + 0.1, G), viz.poke(V, G, token=1), viz.poke(V, G, change=0.5)]
    ids = {f.id for f in [figure, *others]}
    assert len(ids) == 5
    host = Elements(figure.to_html()).first("div")
    assert host == {"class": "caracal-figure", "id": figure.id}
    assert re.fullmatch(r"caracal-poke-[0-9a-f]{12}", figure.id)


def test_a_figure_shows_the_still_of_its_data_and_of_other_data_its_words(monkeypatch, tmp_path):
    monkeypatch.setattr(viz.figure, "_STILLS", tmp_path)
    words = viz.poke(V, G).to_html()
    image = Elements(words).first("img")
    assert "src" not in image and "hidden" in image and "open" in Elements(words).first("details")
    (tmp_path / f"{image['data-key']}.svg").write_text(SVG, encoding="utf-8")
    figure = viz.poke(V, G)
    image = Elements(figure.to_html()).first("img")
    assert still_of(figure) == SVG and image["alt"] == figure.alt and "hidden" not in image
    assert "open" not in Elements(figure.to_html()).first("details")
    assert "src" not in Elements(viz.poke(V + 0.1, G).to_html()).first("img")
    assert Elements(with_stills(words)).first("img") == image, "a page takes the still that there is now"


def test_the_stills_of_the_book_have_the_colours_of_the_palette_and_the_ground_that_a_page_takes_away():
    stills = [path.read_text(encoding="utf-8") for path in viz.figure._STILLS.glob("*.svg")]
    assert len(stills) > 20 and sum(map(len, stills)) < 1_000_000
    for svg in stills:
        assert ElementTree.fromstring(on_dark(svg)).get("width") == "420"
        assert without_ground(svg) != svg


def test_numbers_that_a_machine_computed_choose_no_still():
    keys = [viz.Figure("why", {"text": "a", "trace": {"p": p, "next": [word]}}, None, "x", computed=("trace",))
            for p, word in ((0.1, "b"), (0.2, "b"), (0.1, "c"))]
    first, second, third = (Elements(figure.to_html()).first("img")["data-key"] for figure in keys)
    assert first == second != third


def test_data_cannot_break_out_of_its_script():
    evil = "</script><script>alert(1)</script><!--&\u2028"
    figure = viz.Figure("poke", {"v": [1.0], "note": evil}, SVG, alt='a "quoted" <b>alt</b>')
    elements = Elements(figure.to_html())
    assert len(elements.scripts) == 1
    assert [attrs["alt"] for tag, attrs in elements.tags if tag == "img"] == ['a "quoted" <b>alt</b>']
    assert "b" not in {tag for tag, _ in elements.tags}
    literal = re.search(r"const state = (\{.*?\}), heard", elements.scripts[0])[1]
    assert json.loads(literal) == {"v": [1.0], "note": evil}
    assert not set("<>&\u2028") & set(literal)


def test_a_page_and_a_widget_run_the_same_script_with_what_figures_share_once():
    pytest.importorskip("anywidget")
    figure = viz.poke(V, G)
    script = f"// part drawing\n{DRAWING}\n// part poke\n{SOURCES['poke']}"
    assert str(figure.widget()._esm) == script
    assert Elements(figure.to_html()).scripts[0].startswith(f"\n{script}\n")


@pytest.mark.parametrize("given, message", [
    ({"module": "pokes"}, "no figure module 'pokes'; there are: antidiagonals, change, clock, "),
    ({"module": "drawing"}, "no figure module 'drawing'; there are"),
    ({"alt": " "}, "say in words"),
    ({"still": "<p>no image</p>"}, "give SVG text"),
    ({"model": {"v": [float("nan")]}}, "not JSON compliant"),
])
def test_bad_figures_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        viz.Figure(**{"module": "poke", "model": {}, "still": SVG, "alt": "x", **given})
