"""A function behind controls: every choice has its frame, answers are asked for anew."""

import re
from urllib.parse import unquote

import pytest

from caracal_book import viz


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
    assert "data:image/webp" in unquote(re.search(r'src="data:image/svg[^,]*,([^"]+)"', first.to_html())[1])


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
