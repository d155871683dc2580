"""Figures: self-contained, reproducible, with a still and words, safe against markup in their data, also a widget."""

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import torch

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, circular_conv

V = torch.tensor([1.0, -0.5, 0.25, 2.0])
G = torch.tensor([0.5, 1.0, -1.0, 0.3])
SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in Path(viz.__file__).parent.glob("*.js")}
DRAWING = SOURCES.pop("drawing")
SHARED = re.findall(r"^(?:const|function|class) (\w+)", DRAWING, re.M)


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
    kind, data = Elements(figure.to_html()).first("img")["src"].split(",", 1)
    return kind, base64.b64decode(data) if kind.endswith("base64") else unquote(data).replace("'", '"').encode()


def test_a_still_keeps_every_character():
    hard = "l'été à 100 % \u2212 #3 & \"so\" <b> ^|[]{}\\"
    svg = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", label=hard)
    svg.text = hard
    kind, data = still_of(viz.Figure("poke", {}, ElementTree.tostring(svg, "unicode"), "x"))
    read = ElementTree.fromstring(data)
    assert kind == "data:image/svg+xml" and read.text == read.get("label") == hard


def test_html_needs_nothing_from_elsewhere():
    html = viz.poke(V, G).to_html()
    text = html.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttpRequest|import\(|^import ", text, re.M)
    elements = Elements(html)
    assert [tag for tag, attrs in elements.tags if tag in ("link", "iframe")] == []
    assert elements.first("script") == {"type": "module"}
    assert elements.first("img")["src"].startswith("data:")


def test_html_is_reproducible_and_the_id_follows_the_content():
    figure, same = viz.poke(V, G), viz.poke(V.clone(), G.double())
    assert figure.to_html() == same.to_html()
    others = [viz.poke(V, G, n=5), viz.poke(V + 0.1, G), viz.poke(V, G, token=1), viz.poke(V, G, change=0.5)]
    ids = {f.id for f in [figure, *others]}
    assert len(ids) == 5
    host = Elements(figure.to_html()).first("div")
    assert host == {"class": "caracal-figure", "id": figure.id}
    assert re.fullmatch(r"caracal-poke-[0-9a-f]{12}", figure.id)


def test_still_and_alt_text():
    figure = viz.poke(V, G)
    image = Elements(figure.to_html()).first("img")
    assert image["alt"] == figure.alt and len(image["alt"]) > 60
    assert "hidden" not in image
    kind, data = still_of(figure)
    assert kind == "data:image/svg+xml" and data.startswith(b"<svg") and b"<script" not in data


@pytest.mark.parametrize("n, contaminated", [(4, 3), (5, 2), (6, 1), (7, 0), (8, 0), (9, 0)])
def test_still_tells_the_facts_of_its_own_frame(n, contaminated):
    text = still_of(viz.poke(V, G, n=n, token=2))[1].decode()
    assert f"outputs contaminated: {contaminated} of 4" in text
    after = V.clone()
    after[2] += 1
    moved = (circular_conv(after, G, n) - circular_conv(V, G, n))[:2].abs().max()
    assert f"largest change before token 2: {moved:.2f}" in text.replace("-0.00", "0.00")
    assert f"{contaminated} of the 4 outputs" in viz.poke(V, G, n=n).alt or contaminated == 0


def test_still_draws_the_causal_sum_and_what_wraps():
    text = still_of(viz.poke(V, G, n=4, token=2, change=0.0))[1].decode()
    green = [rect for rect in re.findall(r"<rect[^>]*>", text) if viz.palette.result in rect]
    heights = torch.tensor([float(re.search(r'height="([\d.]+)"', rect)[1]) for rect in green[:4]])
    causal = causal_conv_direct(V, G).abs()
    reach = max(1.0, float(causal.max()), float(circular_conv(V, G).abs().max()))
    assert torch.allclose(heights, causal / reach * 38, atol=0.06)


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


def test_mime_bundle():
    figure = viz.poke(V, G)
    bundle = figure._repr_mimebundle_()
    assert bundle == {"text/html": figure.to_html(), "text/plain": f"Figure('poke'): {figure.alt}"}


def test_png_still():
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    assert still_of(viz.Figure("poke", {}, png, "x")) == ("data:image/png;base64", png)


def test_widget_carries_the_same_module_and_data():
    pytest.importorskip("anywidget")
    figure = viz.poke(V, G)
    widget = figure.widget()
    assert {key: getattr(widget, key) for key in figure.model} == figure.model
    assert "export function render" in str(widget._esm) and "export default" in str(widget._esm)
    assert ".caracal-live" in str(widget._css)
    assert set(figure.model) <= set(widget.trait_names(sync=True))


def test_a_page_and_a_widget_run_the_same_script_with_what_figures_share_once():
    pytest.importorskip("anywidget")
    figure = viz.poke(V, G)
    script = f"// part drawing\n{DRAWING}\n// part poke\n{SOURCES['poke']}"
    assert str(figure.widget()._esm) == script
    assert Elements(figure.to_html()).scripts[0].startswith(f"\n{script}\n")


@pytest.mark.parametrize("module", SOURCES)
def test_no_figure_defines_again_what_drawing_defines(module):
    source = re.sub(r"//.*", "", SOURCES[module])
    defined = r"\b(function|class|const|let|var) {0}\b|[,(] *{0} = |[\[{{,] *{0}[,\]}}]+ = "
    assert [name for name in SHARED if re.search(defined.format(name), source)] == []
    assert "createElementNS" not in source


@pytest.mark.parametrize("name", SHARED)
def test_drawing_holds_only_what_two_figures_use_or_it_needs_itself(name):
    used = [module for module, source in SOURCES.items() if re.search(rf"\b{name}\b", source)]
    assert len(used) > 1 or len(re.findall(rf"\b{name}\b", DRAWING)) > 1


def test_the_id_follows_what_figures_share(monkeypatch):
    figure = viz.poke(V, G)
    monkeypatch.setattr("caracal_book.viz.figure._SHARED", "roots")
    assert viz.poke(V, G).id != figure.id


def test_widget_without_anywidget_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match="pip install anywidget"):
        viz.poke(V, G).widget()


def test_style_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        viz.use_style()


def test_importing_viz_needs_neither_matplotlib_nor_anywidget():
    code = ("import sys; from caracal_book import viz; import torch; viz.poke(torch.ones(4), torch.ones(4)).to_html();"
            "print([m for m in ('matplotlib', 'anywidget', 'IPython') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_style_sets_the_palette_and_repeats_its_files():
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context():
        viz.use_style()
        assert matplotlib.rcParams["axes.prop_cycle"].by_key()["color"][:4] == [
            viz.palette.content, viz.palette.gate, viz.palette.result, viz.palette.wrapped]
        assert matplotlib.rcParams["svg.hashsalt"] and matplotlib.rcParams["figure.facecolor"] == viz.palette.paper


@pytest.mark.parametrize("given, message", [
    ({"module": "pokes"}, "no figure module 'pokes'; there are: antidiagonals, change, clock, "),
    ({"module": "drawing"}, "no figure module 'drawing'; there are"),
    ({"alt": " "}, "say in words"),
    ({"still": "<p>no image</p>"}, "give SVG text"),
    ({"still": b"GIF89a"}, "give SVG text"),
    ({"model": {"v": [float("nan")]}}, "not JSON compliant"),
])
def test_bad_figures_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        viz.Figure(**{"module": "poke", "model": {}, "still": SVG, "alt": "x", **given})


@pytest.mark.parametrize("arguments, message", [
    ((V, G[:3]), r"v has shape \(4,\) and g has shape \(3,\)"),
    ((V[:2], G[:2]), "between 3 and 16"),
    ((torch.ones(17), torch.ones(17)), "between 3 and 16"),
    ((V[None], G[None]), "between 3 and 16"),
    ((V, G, 3), "n=3 FFT points; for length 4 give 4 to 9"),
    ((V, G, 10), "n=10 FFT points"),
])
def test_bad_pokes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        viz.poke(*arguments)


def test_poke_refuses_a_token_outside_the_text():
    with pytest.raises(ValueError, match="token=4; for length 4 give 0 to 3"):
        viz.poke(V, G, token=4)


def test_only_what_a_reader_changes_can_be_set():
    traitlets = pytest.importorskip("traitlets")
    pytest.importorskip("anywidget")
    widget = viz.toeplitz_kernel(V, G, row=2, column=1).widget()
    widget.g = [0.0, 1.0, 0.0, 0.0]
    widget.row = 3
    assert (widget.g, widget.row) == ([0.0, 1.0, 0.0, 0.0], 3)
    with pytest.raises(traitlets.TraitError, match="read-only"):
        widget.v = [0.0] * 4


def test_a_widget_hears_what_the_page_sends():
    pytest.importorskip("anywidget")
    widget, heard = viz.clock(V.clamp(min=0), G.clamp(min=0)).widget(), []
    widget.observe(lambda change: heard.append((change.name, change.new)), names=["n", "v"])
    widget.set_state({"n": 6, "v": [0.5, 0.0, 0.0, 0.0]})     # what the front end's message does
    assert sorted(heard) == [("n", 6), ("v", [0.5, 0.0, 0.0, 0.0])]


def test_no_state_has_the_name_of_something_that_widgets_have():
    anywidget = pytest.importorskip("anywidget")
    taken = {*anywidget.AnyWidget.class_trait_names(), *dir(anywidget.AnyWidget)}
    figures = [viz.parameter_budget(), viz.time_budget(), viz.poke(V, G), viz.roots(4, [1.0]), viz.sight(),
               viz.schedule(8, 2), viz.meeting("abba"), viz.live(lambda n: "", "x", n=[1])]
    assert [key for figure in figures for key in figure.model if key in taken] == []


def test_a_state_that_the_model_lacks_is_refused():
    with pytest.raises(ValueError, match=r"state names \['n'\]; the model has v"):
        viz.Figure("poke", {"v": [1.0]}, SVG, "x", state=("n",))
