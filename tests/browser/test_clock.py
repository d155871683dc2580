"""The wrap-around clock in a real browser, from a file: its still, its keys and pointer, and its arithmetic."""

import math

import pytest
import torch
from figure_pages import contrast, data, drag_up, focused, page_width, scale_of, tensor
from torch.fft import fft, ifft

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, causal_conv_right_angle, circular_conv, linear_conv

L = 5
V = torch.tensor([1.0, 0.6, 1.4, 0.8, 1.2], dtype=torch.float64)
G = torch.tensor([1.2, 0.8, 0.5, 1.0, 0.7], dtype=torch.float64)
ANGLES = {"1": 0.0, "-1": math.pi, "i": math.pi / 2}
FIGURE = viz.clock(V, G)


def bar(page, name, token):
    return page.get_by_role("slider", name=f"{name}, token {token}", exact=True)


def choose(page, unit):
    page.locator(f"input[type=radio][value='{unit}']").check(force=True)


def set_hours(page, n):
    page.locator("input[type=range]").fill(str(n))


def twisted(v, g, n, theta):
    """The outputs where z^n = e^(i theta), by transforms: what the figure adds up product by product."""
    twist = torch.exp(1j * theta * torch.arange(n, dtype=torch.float64) / n)
    a, b = (torch.nn.functional.pad(x, (0, n - len(x))) * twist for x in (v, g))
    return ifft(fft(a) * fft(b)) / twist


def assert_agrees_with_the_package(shown):
    v, g, n, unit = tensor(shown["v"]), tensor(shown["g"]), shown["n"], shown["unit"]
    out = twisted(v, g, n, ANGLES[unit])
    real = tensor(shown["real"])
    assert torch.allclose(torch.complex(real, tensor(shown["imag"])), out, atol=1e-9)
    assert torch.allclose(tensor(shown["p"]), linear_conv(v, g), atol=1e-9) and shown["own"][:L] == shown["p"][:L]
    if unit == "1":
        assert torch.allclose(real, circular_conv(v, g, n), atol=1e-9)
    if (unit, n) == ("i", L):
        assert torch.allclose(real, causal_conv_right_angle(v, g), atol=1e-9)
    wrong = (real[:L] - causal_conv_direct(v, g)).abs() > 1e-9
    assert shown["contaminated"] == ([] if unit == "i" else list(range(2 * L - 1 - n)))
    assert set(wrong.nonzero().flatten().tolist()) <= set(shown["contaminated"])


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt").startswith("Content v and gate g of 5 tokens, and a clock with 5 hours")
    assert still.bounding_box()["height"] > 400


def test_first_frame_is_what_python_asked_for(show):
    page = show(viz.clock(V, G, n=7, unit=-1, hour=6))
    shown = data(page)
    assert (shown["n"], shown["unit"], shown["hour"], shown["v"]) == (7, "-1", 6, V.tolist())
    assert_agrees_with_the_package(shown)
    assert "truncation cuts this hour off" in page.locator("[aria-live]").inner_text()


@pytest.mark.parametrize("unit", ["1", "-1", "i"])
@pytest.mark.parametrize("n", range(L, 2 * L + 1))
def test_outputs_equal_the_package_on_every_clock(page, n, unit):
    set_hours(page, n)
    choose(page, unit)
    for name, keys in (("content v", ["PageUp"]), ("gate g", ["ArrowDown", "End", "ArrowUp"])):
        bar(page, name, 0).focus()
        for key in keys:
            page.keyboard.press(key)
    shown = data(page)
    assert (shown["n"], shown["unit"]) == (n, unit)
    assert shown["v"][0] == pytest.approx(1.5)
    assert (shown["g"][0], shown["g"][4]) == (pytest.approx(1.1), pytest.approx(0.8))
    assert_agrees_with_the_package(shown)


def test_entries_stay_within_their_range_and_focus_moves_along_the_bars(page):
    bar(page, "content v", 0).focus()
    for _ in range(4):
        page.keyboard.press("PageUp")
    assert data(page)["v"][0] == 2
    for _ in range(6):
        page.keyboard.press("PageDown")
    assert data(page)["v"][0] == 0
    assert_agrees_with_the_package(data(page))
    for key, token in (("ArrowLeft", 0), ("ArrowRight", 1), ("End", 4), ("ArrowRight", 4), ("Home", 0)):
        page.keyboard.press(key)
        assert focused(page) == f"content v, token {token}"


def test_everything_is_reached_by_tab(page):
    names = []
    for _ in range(6):
        page.keyboard.press("Tab")
        names.append(page.evaluate("(e => e.getAttribute('aria-label') ?? e.type)(document.activeElement)"))
    assert names == ["content v, token 0", "gate g, token 0", "range", "radio", "hour", "button"]
    for name, shown in (("content v, token 0", ".caracal-ring"), ("hour", ".clock-halo")):      # the focus can be seen
        rings = """e => [...document.querySelectorAll(e)].map((n) => getComputedStyle(n))
            .filter((css) => css.stroke !== 'none' && css.visibility === 'visible').length"""
        assert page.evaluate(rings, shown) == 0
        page.get_by_role("slider", name=name, exact=True).focus()
        assert page.evaluate(rings, shown) == 1


def test_radio_buttons_by_arrow_keys(page):
    page.locator("input[type=radio]:checked").focus()
    for unit in ("-1", "i", "1"):
        page.keyboard.press("ArrowRight")
        assert data(page)["unit"] == unit
        assert page.locator("input[type=radio]:checked").get_attribute("value") == unit
    group = page.get_by_role("radiogroup")
    assert group.inner_text().split("\n") == ["z⁵ = 1", "z⁵ = −1", "z⁵ = i"]
    set_hours(page, 2 * L)
    assert group.inner_text().split("\n")[0] == "z¹⁰ = 1"


def test_the_hand_by_keyboard_reads_each_hour(page):
    hand, p = page.get_by_role("slider", name="hour", exact=True), linear_conv(V, G)
    hand.focus()
    for hour in (1, 2, 3, 4, 0):
        page.keyboard.press("ArrowRight")
        assert data(page)["hour"] == hour and hand.get_attribute("aria-valuenow") == str(hour)
        words = page.locator("[aria-live]").inner_text()
        assert f"{p[hour]:.2f}" in words and f"Hour {hour}: degree" in words
        assert ("depends on later tokens" in words) == (hour < 4)
    page.keyboard.press("ArrowLeft")
    assert data(page)["hour"] == 4
    page.keyboard.press("Home")
    words = page.locator("[aria-live]").inner_text()
    assert "v₁g₄ + v₂g₃ + v₃g₂ + v₄g₁" in words and f"{p[0]:.2f} + {p[5]:.2f}" in words
    choose(page, "i")
    assert f"{p[0]:.2f} + {p[5]:.2f} i" in page.locator("[aria-live]").inner_text()
    assert "The real part is output 0. It is causal." in page.locator("[aria-live]").inner_text()


def test_the_hand_stays_on_the_clock_when_hours_are_taken_away(page):
    set_hours(page, 10)
    page.get_by_role("slider", name="hour", exact=True).focus()
    page.keyboard.press("End")
    assert data(page)["hour"] == 9
    set_hours(page, 6)
    assert data(page)["hour"] == 5
    assert_agrees_with_the_package(data(page))


def test_dragging_a_bar(page):
    drag_up(page, bar(page, "gate g", 3), 16.5, "g")     # a quarter of the height
    assert data(page)["g"][3] == pytest.approx(1.5, abs=0.051)
    assert_agrees_with_the_package(data(page))


def test_turning_the_hand_and_choosing_an_hour_by_pointer(page):
    box = page.locator(".clock-face").bounding_box()
    x, y, r = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"] / 2
    for hour in (2, 4, 0):
        angle = 2 * math.pi * (hour + 0.2) / L
        page.mouse.click(x + 0.9 * r * math.sin(angle), y - 0.9 * r * math.cos(angle))
        assert data(page)["hour"] == hour
    page.mouse.move(x, y - 0.2 * r)
    page.mouse.down()
    page.mouse.move(x + 0.3 * r, y - 0.05 * r, steps=5)
    assert data(page)["hour"] == 1
    page.mouse.up()
    page.mouse.move(x, y + 0.3 * r)
    assert data(page)["hour"] == 1            # released


def test_start_again(page):
    first = data(page)
    set_hours(page, 8)
    choose(page, "i")
    bar(page, "gate g", 0).focus()
    page.keyboard.press("PageDown")
    assert data(page) != first
    page.get_by_role("button", name="Start again").click()
    assert data(page) == first


@pytest.mark.parametrize("unit", ["1", "-1", "i"])
def test_the_drawing_shows_the_numbers(page, unit):
    """The black lines stand at the real parts; each product is drawn at its length, and turned as z^N says."""
    choose(page, unit)
    shown = data(page)
    lines = page.eval_on_selector_all(".clock-face > line", "nodes => nodes.map(n => n.getAttribute('transform'))")
    radii = [-float(line.split("translate(0 ")[1].rstrip(")")) for line in lines]
    scale, dial = scale_of(radii, shown["real"], tolerance=1e-6)
    assert scale > 5 and len(lines) == L
    stacks = page.eval_on_selector_all(".clock-face > g:has(> rect)", """nodes => nodes.map(n => [
        n.getAttribute('transform'), [...n.children].map(r => Number(r.getAttribute('height')))])""")
    assert len(stacks) == 2 * L - 1
    for d, (transform, sizes) in enumerate(stacks):
        terms = [V[j] * G[d - j] for j in range(L) if 0 <= d - j < L]
        assert sizes == pytest.approx([scale * float(term) for term in terms], abs=1e-6)
        turn = {"1": 0, "-1": 180, "i": -90}[unit] if d >= L else 0
        assert transform.endswith(f"rotate({turn})") and transform.startswith(f"rotate({360 * d // L}")
        foot = -float(transform.split("translate(0 ")[1].split(")")[0])
        beyond = foot - dial - (scale * shown["p"][d - L] if d >= L else 0)   # where its own sum ends
        assert 0 < beyond < 12 if turn == -90 else abs(beyond) < 1e-6


def test_products_of_the_bar_in_focus_are_outlined(page):
    bar(page, "gate g", 0).focus()
    page.keyboard.press("ArrowRight")
    count = "nodes => nodes.map(n => [...n.children].filter(r => r.style.strokeWidth === '2.5').length)"
    outlined = page.eval_on_selector_all(".clock-face > g:has(> rect)", count)
    assert outlined == [0, 1, 1, 1, 1, 1, 0, 0, 0]        # v_j g_1: degrees 1 to 5
    page.get_by_role("button").focus()
    assert page.locator(".clock-face rect[style*='stroke-width: 2.5']").count() == 0


def test_motion_ends_where_the_arithmetic_says(open_figure, address):
    moving, calm = open_figure(address, reduced_motion="no-preference"), open_figure(address)
    for page in (moving, calm):
        set_hours(page, 9)
    drawn = "[...document.querySelectorAll('.clock-face > g')].map(n => n.getAttribute('transform')).join('|')"
    moving.wait_for_function(f"end => {drawn} === end", arg=calm.evaluate(drawn))


def test_it_fits_a_phone_and_puts_the_clock_beside_the_bars_on_a_desk(page):
    assert page_width(page) <= 360
    assert bar(page, "content v", 0).bounding_box()["width"] >= 24  # wide enough for a finger
    face, bars = page.locator(".clock-face"), bar(page, "content v", 0)
    assert face.bounding_box()["y"] > bars.bounding_box()["y"] + 60
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_function("document.querySelector('.clock-wide') !== null")
    assert face.bounding_box()["x"] > bars.bounding_box()["x"] + 200
    assert page_width(page) <= 900


def test_it_works_in_a_sandboxed_frame_and_beside_its_twin(framed_twins):
    frame = framed_twins(viz.clock(V, G))
    frame.locator("input[value=i]").nth(1).check(force=True)
    checked = frame.locator("input[type=radio]:checked")
    assert [checked.nth(k).get_attribute("value") for k in range(checked.count())] == ["1", "i"]


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.clock(V, G, n=7))
    colours = page.evaluate("""() => {
      const live = document.querySelector('.caracal-live'), css = (s) => getComputedStyle(live.querySelector(s));
      const chosen = css('.clock-units label:has(:checked)');
      return { shade: css('.clock-face > path').fill,
        chosen: [chosen.color, chosen.backgroundColor], disc: css('.clock-face g > circle').fill,
        texts: ['.caracal-help', '.clock-read dt', '.clock-read dd', '.clock-units label:not(:has(:checked))',
          '.clock-marks span'].map((s) => css(s).color),
        numerals: [...live.querySelectorAll('.clock-face text')].map((node) => getComputedStyle(node).fill) };
    }""")
    assert contrast(*colours["chosen"]) > 4.5
    assert min(contrast(text, paper) for text in colours["texts"]) > 4.5
    assert min(contrast(text, colours["disc"]) for text in colours["numerals"]) > 4.5
