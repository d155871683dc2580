"""Which letters meet in one result, in a real browser: counts against Python's, keys, pointer, phone, themes."""

import pytest
from figure_pages import data, focused, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct

pytestmark = pytest.mark.browser

TEXT = "abcdeedcba"
L = len(TEXT)
FIGURE = viz.meeting(TEXT, t=5)
STROKES = """nodes => nodes.filter(node => node.checkVisibility()).map(node => {
  const look = getComputedStyle(node), box = node.getBBox();
  return [look.stroke, parseFloat(look.strokeWidth), box.x, box.x + box.width];
})"""
CENTRES = """nodes => nodes.map(node => {
  const box = node.getBoundingClientRect(), room = node.closest('.meet-room').getBoundingClientRect();
  return box.left + box.width / 2 - room.left;
})"""


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


def swap(page):
    return page.get_by_role("button", name="Swap two letters")


def test_every_t_draws_the_pairs_that_add_up_to_it(page):
    green = page.eval_on_selector(".caracal-live", """live => {
        const probe = live.appendChild(document.createElement('i'));
        probe.style.color = 'var(--result)';
        return [getComputedStyle(probe).color, probe.remove()][0];
    }""")
    for text in ("aabaacaaba",):
        for k, to in enumerate(text):
            letter(page, k).press(to)
        for t in range(L):
            slider(page).fill(str(t))
            assert_agrees(page)
            x = page.eval_on_selector_all(".meet-letter", CENTRES)
            drawn = page.eval_on_selector_all(".meet-arcs path", STROKES)
            pairs = [(j, t - j) for j in range(L) if j < t - j]
            assert len(drawn) == len(pairs)
            for (colour, width, left, right), (j, i) in zip(drawn, pairs, strict=True):
                assert (left, right) == pytest.approx((x[j], x[i]), abs=0.6)
                assert (colour == green, width >= 3) == (text[j] == text[i],) * 2
            rings = page.eval_on_selector_all(".meet-arcs circle", STROKES)
            assert [(left + right) / 2 for _, _, left, right in rings] == pytest.approx(
                [] if t % 2 else [x[t // 2]], abs=0.6)
            marks = page.locator(".meet-letter").evaluate_all("nodes => nodes.map(node => node.dataset.meets)")
            assert marks == ["later" if k > t else "equal" if text[k] == text[t - k] else "other" for k in range(L)]


def test_a_swap_spoils_a_palindrome_and_no_count_of_letters(page):
    slider(page).fill("9")
    assert assert_agrees(page)["palindrome"]
    swap(page).click()
    shown = assert_agrees(page)
    moved = [k for k in range(L) if shown["text"][k] != TEXT[k]]
    assert shown["equal"] == 6 and not shown["palindrome"]
    assert len(moved) == 2 and min(moved) >= L / 2 and (moved[1] - moved[0]) % 2 == 0
    assert [sorted(shown["text"][half::2]) for half in (0, 1)] == [sorted(TEXT[half::2]) for half in (0, 1)]
    swap(page).click()
    assert assert_agrees(page)["palindrome"]


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
