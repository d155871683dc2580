"""The wrap-around clock in a real browser, from a file: its still, its keys and pointer, and its arithmetic."""

import itertools
import math

import pytest
import torch
from figure_pages import data, drag_up, tensor
from torch.fft import fft, ifft

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct, causal_conv_right_angle, circular_conv, linear_conv

pytestmark = pytest.mark.browser

L = 5
V = torch.tensor([1.0, 0.6, 1.4, 0.8, 1.2], dtype=torch.float64)
G = torch.tensor([1.2, 0.8, 0.5, 1.0, 0.7], dtype=torch.float64)
ANGLES = {"1": 0.0, "-1": math.pi, "i": math.pi / 2}
FIGURE = viz.clock(V, G)


def bar(page, name, token):
    return page.get_by_role("slider", name=f"{name}, token {token}", exact=True)


def choose(page, unit):
    page.locator(f"input[type=radio][value='{unit}']").check(force=True)


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


def test_outputs_equal_the_package_on_every_clock(page):
    for name, keys in (("content v", ["PageUp"]), ("gate g", ["ArrowDown", "End", "ArrowUp"])):
        bar(page, name, 0).focus()
        for key in keys:
            page.keyboard.press(key)
    for n, unit in itertools.product(range(L, 2 * L + 1), ANGLES):
        page.locator("input[type=range]").fill(str(n))
        choose(page, unit)
        shown = data(page)
        assert (shown["n"], shown["unit"], shown["v"][0]) == (n, unit, pytest.approx(1.5))
        assert (shown["g"][0], shown["g"][4]) == (pytest.approx(1.1), pytest.approx(0.8))
        assert_agrees_with_the_package(shown)


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


def test_dragging_a_bar(page):
    drag_up(page, bar(page, "gate g", 3), 16.5, "g")     # a quarter of the height
    assert data(page)["g"][3] == pytest.approx(1.5, abs=0.051)
    assert_agrees_with_the_package(data(page))
