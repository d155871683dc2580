"""Which letters meet in one result, in a real browser: counts against Python's, keys, pointer, phone, themes."""

import pytest
from figure_pages import contrast, data, focused, page_width, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct

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


def test_without_scripts_the_still_is_shown(still):
    assert "0 of 6 products" in still.get_attribute("alt") and TEXT in still.get_attribute("alt")
    assert still.evaluate("image => image.naturalWidth") == 420


def test_first_frame(page):
    shown = assert_agrees(page)
    assert (shown["text"], shown["t"], shown["equal"], shown["palindrome"]) == (TEXT, 5, 0, False)
    assert letters(page) == TEXT


def test_every_t_draws_the_pairs_that_add_up_to_it(page):
    green = page.eval_on_selector(".caracal-live", """live => {
        const probe = live.appendChild(document.createElement('i'));
        probe.style.color = 'var(--result)';
        return [getComputedStyle(probe).color, probe.remove()][0];
    }""")
    for text in (TEXT, "aabaacaaba"):
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


def test_the_bars_are_the_shares(page):
    swap(page).click()
    boxes = page.eval_on_selector_all("svg:not(.meet-arcs) rect", """nodes => nodes.map(node =>
        [node.style.fill, Number(node.getAttribute('height')), Number(node.getAttribute('x')), node.style.stroke])""")
    full = [height for fill, height, *_ in boxes if fill == "var(--rule)"]
    bars = [(height, x) for fill, height, x, _ in boxes if fill == "var(--result)"]
    assert len(set(full)) == 1 and len(full) == len(bars) == L
    assert [height / full[0] for height, _ in bars] == pytest.approx(
        [n / (t + 1) for t, n in enumerate(data(page)["counts"])])
    marks = [x for *_, x, stroke in boxes if stroke == "var(--ink)"]
    assert marks == pytest.approx([bars[5][1] - 2])


def test_the_thumb_stands_under_its_letter(page):
    for t in (0, 4, 9):
        slider(page).fill(str(t))
        box, x = slider(page).bounding_box(), letter(page, t).bounding_box()
        assert box["x"] + 12 + (box["width"] - 24) * t / (L - 1) == pytest.approx(x["x"] + x["width"] / 2, abs=0.6)


def test_letters_change_by_keyboard(page):
    letter(page, 0).focus()
    for key, text, name in (("ArrowUp", "bbcdeedcba", "letter 0, b"), ("ArrowDown", TEXT, "letter 0, a"),
                            ("ArrowDown", "hbcdeedcba", "letter 0, h"), ("ArrowRight", "hbcdeedcba", "letter 1, b"),
                            ("End", "hbcdeedcba", "letter 9, a"), ("h", "hbcdeedcbh", "letter 9, h"),
                            ("ArrowUp", "hbcdeedcba", "letter 9, a"),
                            ("ArrowRight", "hbcdeedcba", "letter 9, a"), ("Z", "hbcdeedcbz", "letter 9, z"),
                            ("Enter", "hbcdeedcba", "letter 9, a"), ("Space", "hbcdeedcbb", "letter 9, b"),
                            ("Home", "hbcdeedcbb", "letter 0, h"), ("1", "hbcdeedcbb", "letter 0, h")):
        page.keyboard.press(key)
        assert (data(page)["text"], focused(page)) == (text, name), key
        assert letters(page) == text
        assert_agrees(page)
    assert page.locator(".meet-letter[tabindex='0']").count() == 1


def test_letters_typed_into_a_notebook_are_no_commands(page):
    page.evaluate("() => { window.heard = []; addEventListener('keydown', (event) => heard.push(event.key)); }")
    letter(page, 3).focus()
    for key in ("d", "d", "x", "ArrowUp", "Control+e", "Escape"):
        page.keyboard.press(key)
    assert page.evaluate("window.heard") == ["Control", "e", "Escape"]
    assert data(page)["text"] == "abcaeedcba", "x, then up to a; Control and a letter is a browser's own"


def test_a_click_goes_through_the_letters(page):
    for to in "efgha":
        letter(page, 3).click()
        assert data(page)["text"] == f"abc{to}eedcba"
        assert_agrees(page)


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


def test_nothing_is_swapped_where_no_two_letters_fit(show):
    page = show(viz.meeting("aaaaaaab"), viz.meeting("abcba"), viz.meeting("aaaabcbc"))
    assert [button.is_disabled() for button in swap(page).all()] == [False, True, True]
    swap(page).first.click()
    assert data(page)["text"] == "aaaaabaa"


def test_start_again(page):
    first = data(page)
    slider(page).fill("8")
    swap(page).click()
    letter(page, 0).click()
    assert data(page) != first
    page.get_by_role("button", name="Start again").click()
    assert data(page) == first and letters(page) == TEXT


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


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("text", [TEXT, "aaaa", "abracadabraxyz"])
def test_it_fits_a_phone_and_stands_still(width, text, show):
    page = show(viz.meeting(text), viewport={"width": width, "height": 900})
    heights, live = set(), page.locator(".caracal-live")
    for press in (None, "z", "b"):
        if press:
            letter(page, len(text) - 1).press(press)
        for t in range(len(text)):
            slider(page).fill(str(t))
            assert page_width(page) <= width
            heights.add(live.bounding_box()["height"])
        assert_agrees(page)
    assert len(heights) == 1
    frame = live.bounding_box()
    for node in page.locator(".meet-letter, .caracal-live button, .caracal-live svg text").all():
        box = node.bounding_box()
        assert frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]
    for node in page.locator(".caracal-live button").all():
        box = node.bounding_box()
        narrow = 20 if (width, len(text)) == (320, 14) else 24      # 14 letters do not find 24 pixels each
        assert box["height"] >= 36 and box["width"] >= narrow


def test_two_on_one_page_are_independent(framed_twins):
    frame = framed_twins(FIGURE)
    frame.get_by_role("button", name="letter 2, c").nth(1).click()
    frame.get_by_role("slider").nth(1).fill("7")
    assert [(data(frame, k)["text"], data(frame, k)["t"]) for k in (0, 1)] == [(TEXT, 5), ("abddeedcba", 7)]
    assert_agrees(frame, 1)


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.meeting("abcdaacbab", t=8))
    css = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"
    same, after = ".meet-letter[data-meets=equal] b", ".meet-letter[data-meets=later] b"
    facts, equal, later, place, help_, note, bar, edge, dashes, arc, thin = (page.evaluate(css, [*pair]) for pair in [
        (".caracal-facts", "color"), (same, "color"), (after, "color"), (".meet-letter i", "color"),
        (".caracal-help", "color"), (".meet-swap span", "color"), ("svg:not(.meet-arcs) text", "fill"),
        (same, "borderTopColor"), (after, "borderTopColor"), (".meet-arcs path[style*=result]", "stroke"),
        (".meet-arcs path[style*=muted]", "stroke")])
    assert min(contrast(facts, paper), contrast(equal, paper)) > 7
    assert min(contrast(colour, paper) for colour in (later, place, help_, note, bar)) > 4.5
    assert min(contrast(colour, paper) for colour in (edge, dashes, arc, thin)) > 3
