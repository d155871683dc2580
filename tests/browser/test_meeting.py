"""Which letters meet in one result, in a real browser: counts against Python's, keys and pointer."""

import pytest
from figure_pages import data, focused, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct

pytestmark = pytest.mark.browser

TEXT, OTHER = "abcdeedcba", "aabaacaaba"
L = len(TEXT)
FIGURE = viz.meeting(TEXT, t=5)


def met(text):
    return [sum(text[j] == text[t - j] for j in range(t + 1)) for t in range(len(text))]


def assert_agrees(page, number=0):
    """The data against a count in Python and against a convolution; what is drawn and written against the data."""
    shown = data(page, number)
    text, t, counts = shown["text"], shown["t"], met(shown["text"])
    places = tensor([[letter == other for other in text] for letter in sorted(set(text))])
    assert causal_conv_direct(places, places).sum(0).round().int().tolist() == shown["counts"] == counts
    assert shown["equal"] == counts[t]
    assert shown["palindrome"] == (text[:t + 1] == text[:t + 1][::-1]) == (counts[t] == t + 1)
    words = page.locator("[aria-live]").nth(number).inner_text()
    assert f"equal in r at t = {t}\n{counts[t]} of {t + 1} product" in words
    assert f"the text up to t = {t} is a palindrome\n{'yes' if shown['palindrome'] else 'no'}" in words
    return shown


def letter(page, k):
    return page.locator(".meet-letter").nth(k)


def letters(page):
    return "".join(page.locator(".meet-letter b").all_inner_texts())


def slider(page):
    return page.get_by_role("slider")


def test_every_t_draws_the_pairs_that_add_up_to_it(page):
    for k, to in enumerate(OTHER):
        letter(page, k).press(to)
    for t in range(L):
        slider(page).fill(str(t))
        assert assert_agrees(page)["text"] == OTHER
        marks = page.locator(".meet-letter").evaluate_all("nodes => nodes.map(node => node.dataset.meets)")
        assert marks == ["later" if k > t else "equal" if OTHER[k] == OTHER[t - k] else "other" for k in range(L)]
        assert page.locator(".meet-arcs path:visible").count() == (t + 1) // 2


def test_t_is_dragged_along_the_bars(page):
    field = page.locator(".meet-bars").bounding_box()
    y, pitch = field["y"] + field["height"] / 2, field["width"] / L
    page.mouse.move(field["x"] + pitch * 2.5, y)
    assert data(page)["t"] == 5
    page.mouse.down()
    assert data(page)["t"] == 2
    page.mouse.move(field["x"] + pitch * 9.5, y, steps=3)
    assert data(page)["t"] == 9 and slider(page).input_value() == "9"
    page.mouse.up()
    page.mouse.move(field["x"] + pitch * 0.5, y)
    assert assert_agrees(page)["t"] == 9


def test_letters_change_by_keyboard(page):
    letter(page, 0).focus()
    for key, text, name in (("ArrowUp", "bbcdeedcba", "letter 0, b"), ("h", "hbcdeedcba", "letter 0, h"),
                            ("ArrowRight", "hbcdeedcba", "letter 1, b"), ("End", "hbcdeedcba", "letter 9, a")):
        page.keyboard.press(key)
        assert (data(page)["text"], focused(page), letters(page)) == (text, name, text), key
    assert_agrees(page)
