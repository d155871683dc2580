"""A function behind controls: every choice has its frame, answers are asked for anew, and bad input is refused."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from figure_stills import still_of

from caracal_book import viz

WIDGET = "application/vnd.jupyter.widget-view+json"


def word(n=2, letter="a"):
    return letter * n


def frames_of(figure):
    """Return what a page shows for each choice."""
    return [figure.model["frames"][place] for place in figure.model["places"]]


def test_every_choice_has_what_the_function_gives():
    figure = viz.live(word, "letters", n=range(1, 4), letter=["a", "b"])
    assert frames_of(figure) == [[{"text": letter * n}] for n in (1, 2, 3) for letter in "ab"]
    assert figure.model["values"] == [1, 0] and figure.model["answer"]["parts"] == [{"text": "aa"}]
    assert [c["kind"] for c in figure.model["controls"]] == ["slider", "choice"]


def test_equal_frames_are_kept_once():
    figure = viz.live(lambda n: "even" if n % 2 == 0 else "odd", "parity", n=range(9))
    assert len(figure.model["frames"]) == 2 and figure.model["places"] == [0, 1] * 4 + [0]


@pytest.mark.parametrize("given, parts", [
    ("text", [{"text": "text"}]), ({"a": 1, 2: -0.5}, [{"bars": [["a", 1.0], ["2", -0.5]]}]),
    (("a", {"b": 1}), [{"text": "a"}, {"bars": [["b", 1.0]]}]), (None, []),
])
def test_what_a_function_may_return(given, parts):
    assert viz.live(lambda n: given, "x", n=[1]).model["frames"] == [parts]


def test_what_it_prints_stands_first(capsys):
    def chatty(n):
        print("n is", n)
        return "done"

    assert viz.live(chatty, "x", n=[3]).model["frames"] == [[{"text": "n is 3"}, {"text": "done"}]]
    assert capsys.readouterr().out == ""


def test_a_plot_is_drawn_described_and_closed():
    pyplot = pytest.importorskip("matplotlib.pyplot")

    def plot(N):
        figure, axes = pyplot.subplots(figsize=(2, 1))
        axes.plot([0, N])
        return figure

    first, second = viz.live(plot, "lines", N=[1, 2]), viz.live(plot, "lines", N=[1, 2])
    assert pyplot.get_fignums() == [] and first.to_html() == second.to_html()
    [image] = first.model["frames"][1]
    assert image["image"].startswith("data:image/webp;base64,") and image["alt"] == "the plot for N 2"
    assert (image["width"], image["height"]) == (192, 96)
    assert "data:image/webp" in still_of(first)


def test_names_and_values_in_words():
    controls = viz.live(lambda top_k, x, own: "", "x", top_k=(None, 5), x=[-0.5], own=viz.Texts("a")).model["controls"]
    assert controls == [{"name": "top-k", "kind": "slider", "options": ["none", "5"]},
                        {"name": "x", "kind": "slider", "options": ["−0.5"]},
                        {"name": "own", "kind": "text", "options": ["a"]}]


def test_the_still_tells_the_first_frame():
    text = still_of(viz.live(lambda n: (f"n is {n}", {"one": 1.0, "two": -2.5}), "x", n=range(4, 7)))
    assert "n = 4" in text and "n is 4" in text and "−2.50" in text


def test_a_widget_asks_again_and_knows_texts_of_the_readers_own():
    pytest.importorskip("anywidget")
    factor = [1]
    figure = viz.live(lambda n, letter: letter * n * factor[0], "x", n=range(1, 4), letter=viz.Texts("a", "b"))
    widget = figure.widget()
    assert widget.frames is None and widget.answer["parts"] == [{"text": "a"}]
    widget.values = [1, 1]
    assert widget.answer == {"values": [1, 1], "parts": [{"text": "bb"}]}
    factor[0] = 2                                   # an edited function answers
    widget.values = [2, "xy"]
    assert widget.answer == {"values": [2, "xy"], "parts": [{"text": "xy" * 6}]}


def test_an_error_of_the_function_is_an_answer_in_a_widget_and_an_error_of_the_cell():
    broken = [False]

    def mine(n):
        if broken[0]:
            raise KeyError("nothing here")
        return "fine"

    figure = viz.live(mine, "x", n=range(3))
    broken[0] = True
    assert figure.answer([1]) == {"values": [1], "parts": [{"error": "KeyError: 'nothing here'"}]}
    with pytest.raises(KeyError) as error:
        viz.live(mine, "x", n=range(3))
    assert error.value.__notes__ == ["in mine(n=0)"]


def test_without_a_kernel_or_anywidget_a_page_is_all_there_is(monkeypatch):
    figure = viz.live(word, "letters", n=[2])
    assert set(figure._repr_mimebundle_()) == {"text/html", "text/plain"}
    monkeypatch.setattr(sys.modules["caracal_book.viz.live"], "_has_kernel", lambda: True)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert set(figure._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_in_a_kernel_both_are_shown(monkeypatch):
    pytest.importorskip("anywidget")
    monkeypatch.setattr(sys.modules["caracal_book.viz.live"], "_has_kernel", lambda: True)
    figure = viz.live(word, "letters", n=[2])
    bundle, metadata = figure._repr_mimebundle_()
    assert bundle["text/html"] == figure.to_html() and WIDGET in bundle and metadata == {}


def test_colab_is_told_where_the_scripts_of_its_widgets_are(monkeypatch):
    """Without that a widget stays dead there; `google.colab.output` is a stand-in for the module that Colab has."""
    pytest.importorskip("anywidget")
    output = SimpleNamespace(enable_custom_widget_manager=lambda *_: None,
                             _widgets=SimpleNamespace(_installed_url="https://widgets.example"))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    monkeypatch.setattr(sys.modules["caracal_book.viz.live"], "_has_kernel", lambda: True)
    bundle, metadata = viz.live(word, "letters", n=[2])._repr_mimebundle_()
    assert WIDGET in bundle
    assert metadata == {WIDGET: {"colab": {"custom_widget_manager": {"url": "https://widgets.example"}}}}


def test_it_needs_neither_matplotlib_nor_anywidget():
    code = ("import sys; from caracal_book import viz; viz.live(lambda n: 'a', 'x', n=[1]).to_html();"
            "print([m for m in ('matplotlib', 'anywidget', 'ipywidgets', 'IPython') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_text_cannot_break_out_of_the_page():
    html = viz.live(lambda n: "</script><b>", "x", n=["<i>"]).to_html()
    assert html.count("</script") == 1 and "<i>" not in html
    assert json.loads(re.search(r"const state = (\{.*?\}), heard", html)[1])["frames"] == [[{"text": "</script><b>"}]]


@pytest.mark.parametrize("controls, kind, message", [
    ({}, ValueError, "no controls; give the values of each argument, for example"),
    ({"n": []}, ValueError, "n has no values to choose from"),
    ({"n": [1, 3]}, ValueError, r"n starts at 2, its default, which is not among \[1, 3\]"),
    ({"n": [2], "m": [1]}, TypeError, "word takes n, letter, and there are controls for n, m: .*'m'"),
    ({"n": range(2, 50), "letter": [*"abcdefghij"]}, ValueError, "48 x 10 = 480 choices, and a page holds 400"),
    ({"n": [2], "letter": viz.Texts("a", 3)}, ValueError, "letter: Texts are strings"),
])
def test_bad_controls_are_refused(controls, kind, message):
    with pytest.raises(kind, match=message):
        viz.live(word, "letters", **controls)


def test_answers_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="returned int; it may return a text, a mapping of names to numbers"):
        viz.live(lambda n: 3, "x", n=[1])
