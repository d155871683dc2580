"""The schedule figure in a real browser, from a file: its still, its keys and pointer, and its arithmetic."""

import math

import pytest
import torch
from figure_pages import contrast, data, page_width

from caracal_book import viz
from caracal_min.relaxed import RelaxedConvolution

L = 32
FIGURE = viz.schedule(L, 12)


class Recorded(RelaxedConvolution):
    """The package's decoder, which tells what a block adds."""

    def added(self, n):
        added = self._added(slice(0, 1), n)[0].round().int()
        return torch.nn.functional.pad(added, (n, self.capacity - n - added.shape[-1]))


def enumerate_pairs(length):
    """Return for every n the pairs that the package's decoder adds then, found by feeding it one pair at a time.

    A channel for each pair (j, i): content 1 at j, gate 1 at i.  A block adds 1 to result j + i of that channel.
    """
    pairs = [(j, i) for j in range(length) for i in range(length - j)]
    v, g = torch.zeros(2, 1, len(pairs), length, dtype=torch.float64)
    for channel, (j, i) in enumerate(pairs):
        v[0, channel, j], g[0, channel, i] = 1, 1
    online = Recorded(1, len(pairs), length, torch.float64, base=1)
    added = {}
    for n in range(1, length + 1):
        online.streams[:, :, :, n - 1] = torch.stack([v, g])[..., n - 1]
        step = online.added(n)
        in_blocks = {pairs[c] for c, t in step.nonzero().tolist() if step[c, t] == 1 and t == sum(pairs[c])}
        added[n] = in_blocks | {(n - 1, 0), (0, n - 1)}
    return added


ADDED = enumerate_pairs(L)


def assert_agrees_with_the_package(shown):
    n = shown["n"]
    m = n & -n
    assert (shown["m"], shown["l"]) == (m, n - m)
    assert {tuple(pair) for pair in shown["lit"]} == ADDED[n]
    so_far = set().union(*(ADDED[k] for k in range(1, n + 1)))
    assert shown["share"] == [sum(j + i == t for j, i in so_far) for t in range(L)]
    assert shown["share"][:n] == list(range(1, n + 1)), "every result that was read is full"
    fed = {j + i for j, i in ADDED[n] if j and i}
    if fed:
        assert (shown["first"], shown["last"]) == (n, min(n + m, L) - 1) and fed <= set(range(n, n + m))


def set_tokens(page, n):
    page.locator("input[type=range]").fill(str(n))


def test_the_reference_counts_every_pair_once():
    counted = [pair for pairs in ADDED.values() for pair in pairs]
    assert len(counted) == len(set(counted)) == L * (L + 1) // 2


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt").startswith("A triangle of squares")
    assert still.bounding_box()["height"] > 250


def test_every_step_agrees_with_the_package(page):
    assert data(page)["n"] == 12
    for n in range(1, L + 1):
        set_tokens(page, n)
        assert data(page)["n"] == n
        assert_agrees_with_the_package(data(page))


def test_costs_are_those_of_the_chapter(page):
    def cost(n):
        m = n & -n
        return (3 if n == m else 5) * 2 * m * math.log2(2 * m) if n < L else 0

    assert data(page)["costs"] == pytest.approx([cost(n) for n in range(1, L + 1)])


def test_buttons_and_keys_let_tokens_arrive(page):
    page.get_by_role("button", name="Next token").click()
    assert data(page)["n"] == 13
    page.get_by_role("button", name="Back").press("Enter")
    page.get_by_role("button", name="Back").press("Enter")
    assert data(page)["n"] == 11
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert data(page)["n"] == 12
    page.keyboard.press("Home")
    assert data(page)["n"] == 1 and page.get_by_role("button", name="Back").is_disabled()
    page.keyboard.press("End")
    assert data(page)["n"] == L and page.get_by_role("button", name="Next token").is_disabled()
    assert "the text ends here" in page.locator("[aria-live]").inner_text()
    page.get_by_role("button", name="Start again").click()
    assert data(page)["n"] == 12


def test_the_words_say_what_is_added(page):
    words = page.locator("[aria-live]").inner_text()
    assert "1100 in binary: lowest bit m = 4, l = 8" in words
    assert "v[8:12]∗g[0:8] + g[8:12]∗v[0:8]" in words and "for results 12 to 15" in words
    assert "r₁₁ is read: 12 of 12 pairs are in" in words
    set_tokens(page, 16)
    assert "v[0:16]∗g[0:16]\n" in page.locator("[aria-live]").inner_text()


def test_a_click_on_a_pair_goes_to_the_moment_at_which_it_is_counted(page):
    pairs = [(j, i) for j in range(L) for i in range(L - j)]
    for j, i in ((0, 0), (9, 5), (5, 9), (3, 3), (20, 7), (31, 0)):
        page.locator(".sch-pair").nth(pairs.index((j, i))).click(force=True)
        assert [j, i] in data(page)["lit"], (j, i)


def test_dragging_over_a_strip_moves_through_time(page):
    strip = page.locator(".sch-time").nth(1)
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    pitch = box["width"] / L
    page.mouse.move(box["x"] + 7.5 * pitch, box["y"] + 20)
    page.mouse.down()
    assert data(page)["n"] == 8
    page.mouse.move(box["x"] + 23.5 * pitch, box["y"] + 20, steps=3)
    assert data(page)["n"] == 24
    page.mouse.up()
    page.mouse.move(box["x"] + 3 * pitch, box["y"] + 20)
    assert data(page)["n"] == 24


def test_the_drawing_shows_the_pairs(page):
    """Contents go down, gates across; the lit squares are the new pairs, blue where the content is the later one."""
    for n in (1, 5, 12, 16):
        set_tokens(page, n)
        squares = page.eval_on_selector_all(".sch-pair", """nodes => nodes.map(node =>
            [...["x", "y", "width"].map(name => Number(node.getAttribute(name))), node.getAttribute("style")])""")
        left, top = min(x for x, *_ in squares), min(y for _, y, *_ in squares)
        pitch = sorted({x for x, *_ in squares})[1] - left
        shown = {(round((y - top) / pitch), round((x - left) / pitch)): style for x, y, _, style in squares}
        assert len(shown) == L * (L + 1) // 2
        triangle = n & -n == n
        blue = {(j, i) for j, i in ADDED[n] if j > i or j == i or (triangle and min(j, i) > 0)}
        assert {pair for pair, style in shown.items() if "--content" in style} == blue
        assert {pair for pair, style in shown.items() if "--gate" in style} == ADDED[n] - blue


def test_it_fits_a_phone_and_follows_the_width(page):
    assert page_width(page) <= 360
    narrow = page.locator(".sch-pair").first.bounding_box()["width"]
    page.set_viewport_size({"width": 560, "height": 900})
    page.wait_for_function("w => document.querySelector('.sch-pair').getBoundingClientRect().width > 1.3 * w",
                           arg=narrow)
    assert page_width(page) <= 560


def test_it_works_in_a_sandboxed_frame_and_beside_its_twin(framed_twins):
    frame = framed_twins(viz.schedule(16, 3))
    first, second = (frame.locator(".caracal-figure").nth(k) for k in (0, 1))
    second.get_by_role("button", name="Next token").click()
    assert second.evaluate("host => host.dataset.n") == "4" and first.evaluate("host => host.dataset.n") == "3"


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(FIGURE)
    ink, muted, key = page.evaluate("""() => {
      const live = document.querySelector('.caracal-live'), css = (s) => getComputedStyle(live.querySelector(s));
      return [css('svg text:not(.muted)').fill, css('svg text.muted').fill, css('.sch-key').color];
    }""")
    assert contrast(ink, paper) > 7 and contrast(muted, paper) > 4.5 and contrast(key, paper) > 4.5
