"""What the stills are written with: escaped words, numbers without idle zeros, a frame that a browser takes."""

from xml.etree import ElementTree

import pytest

from caracal_book.viz import palette, svg


@pytest.mark.parametrize("x, written", [
    (0, "0"), (-0.001, "0"), (12, "12"), (1.5, "1.5"), (-2.346, "-2.35"), (100.0, "100"), (0.1 + 0.2, "0.3"),
])
def test_numbers_have_two_decimals_at_most(x, written):
    assert svg.number(x) == written


@pytest.mark.parametrize("x, digits, written", [
    (-0.001, 2, "0.00"), (-1.5, 2, "−1.50"), (2.0, 3, "2.000"), (-0.5, 0, "0"), (-1.5, 0, "−2"),
])
def test_said_as_the_page_says_it(x, digits, written):
    assert svg.said(x, digits) == written


def test_words_and_attributes_are_escaped():
    hostile = "<b>&\"'</text>"
    mark = svg.text(1, 2.0, hostile, "end", 700, font_family=hostile)
    node = ElementTree.fromstring(mark)
    assert node.text == node.get("font-family") == hostile and "<b>" not in mark
    assert (node.get("x"), node.get("y"), node.get("text-anchor"), node.get("font-weight")) == ("1", "2", "end", "700")
    key = ElementTree.fromstring(svg.key(0, 0, svg.entry(hostile, fill="red"), svg.entry("b", "□", fill="blue")))
    assert "".join(key.itertext()) == f"■ {hostile}  □ b" and [t.get("fill") for t in key] == ["red", "blue"]


def test_an_attribute_of_none_is_left_out_and_underscores_are_hyphens():
    mark = svg.rect(0, 1, 2, 3, fill=None, stroke_width=1.5)
    assert mark == '<rect x="0" y="1" width="2" height="3" stroke-width="1.5"/>'


def test_a_path_parts_its_numbers():
    assert svg.path("M", 1, -2.0, "L", 3.14159, 4, "h-2", 5) == '<path d="M1 -2L3.14 4h-2 5" fill="none"/>'
    assert svg.path("M0 0", "z", fill="red", stroke="blue") == '<path d="M0 0z" fill="red" stroke="blue"/>'


@pytest.mark.parametrize("start, end", [(10, 4), (4, 10)])
def test_a_bar_stands_between_two_heights(start, end):
    assert svg.bar(1, 2, start, end) == '<rect x="1" y="4" width="2" height="6"/>'


def test_lines_stand_below_each_other():
    assert svg.lines(5, 10, ["a", "b"], 20) == svg.text(5, 10, "a") + svg.text(5, 30, "b")


def test_the_frame_has_whole_pixels_and_paper_under_its_marks():
    tree = ElementTree.fromstring(svg.frame(420, 99.6, svg.circle(1, 2, 3), size=12.5))
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert (tree.get("viewBox"), tree.get("width"), tree.get("height")) == ("0 0 420 100", "420", "100")
    assert (tree.get("fill"), tree.get("font-size")) == (palette.ink, "12.5")
    ground, circle = tree
    assert (ground.get("fill"), ground.get("width"), ground.get("height")) == (palette.paper, "420", "100")
    assert [circle.get(name) for name in ("cx", "cy", "r")] == ["1", "2", "3"]
