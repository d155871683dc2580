"""The figure of the roots of unity in a real browser: points, squares and values against torch."""

import math

import pytest
import torch
from figure_pages import data

from caracal_book import viz

pytestmark = pytest.mark.browser

COEFFICIENTS = [1.0, 2.0, 1.5, -1.0]
FIGURE = viz.roots(8, COEFFICIENTS)


def numbers(pairs):
    return torch.view_as_complex(torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2))


def control(page, name):
    return page.get_by_role("slider", name=name)


def assert_agrees_with_torch(page, coefficients=COEFFICIENTS):
    shown = data(page)
    n, twist, k = shown["n"], shown["twist"], shown["point"]
    v = torch.tensor(coefficients, dtype=torch.complex128)
    turned = v * torch.exp(1j * twist * torch.arange(len(v), dtype=torch.float64))
    folded = sum(torch.nn.functional.pad(part, (0, n - len(part))) for part in turned.split(n))
    z = torch.exp(1j * (twist - 2 * math.pi * torch.arange(n, dtype=torch.float64) / n))
    values = numbers(shown["values"])
    assert torch.allclose(numbers(shown["points"]), z)
    assert torch.allclose(numbers(shown["squares"]), z**2)
    assert torch.allclose(z**n, torch.full_like(z, complex(math.cos(n * twist), math.sin(n * twist))))
    assert torch.allclose(values, torch.fft.fft(folded))  # the twist, then the library's transform
    even, odd = numbers(shown["even"])[0], numbers(shown["odd"])[0]
    assert torch.isclose(even + odd, values[k])
    assert shown["distinct"] == len({(round(x.real, 6), round(x.imag, 6)) for x in (z**2 + 0).tolist()})
    if n % 2:
        assert shown["partner"] is None
    else:
        assert torch.isclose(z[shown["partner"]], -z[k])
        assert torch.isclose(even - odd, values[shown["partner"]])


def test_every_number_of_points(page):
    for n in (2, 3, 4, 5, 8, 16):
        control(page, "number of points").fill(str(n))
        for degrees in (0, 90, 180, 345):
            control(page, "turn").fill(str(degrees))
            control(page, "chosen point").fill(str(n - 1))
            shown = data(page)
            assert (shown["n"], shown["degrees"], shown["point"]) == (n, degrees, n - 1)
            assert_agrees_with_torch(page)
        assert ("N is odd" in page.locator("[aria-live]").inner_text()) == (n % 2 == 1)


def test_by_keyboard(page):
    control(page, "turn").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert data(page)["degrees"] == 90
    assert "= i" in page.locator("label").nth(2).inner_text()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert "= −1" in page.locator("label").nth(2).inner_text()
    assert data(page)["twist"] == pytest.approx(math.pi / 8)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    assert data(page)["point"] == 2
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    assert (data(page)["n"], data(page)["point"]) == (2, 1)  # there is no point 2 any more
    assert_agrees_with_torch(page)


def place(page, angle, share=1.0):
    """Return where a point of the first circle stands on the screen."""
    box = page.locator(".turn").bounding_box()
    radius = share * box["width"] / 2 / 1.4
    return (box["x"] + box["width"] / 2 + radius * math.cos(angle),
            box["y"] + box["height"] / 2 - radius * math.sin(angle))


def test_dragging_a_point_turns_them_all_and_it_stays_with_the_pointer(page):
    page.mouse.move(*place(page, -math.pi / 4))
    page.mouse.down()
    for angle in (-0.6, -0.3, 0.0, 0.4, 1.0, 2.5):
        page.mouse.move(*place(page, angle), steps=3)
        shown = data(page)
        z = numbers(shown["points"])[shown["point"]]
        gap = abs(math.remainder(math.atan2(z.imag, z.real) - angle, 2 * math.pi))
        assert gap < math.radians(15) / 8 / 2 + 0.03
        assert 0 <= shown["degrees"] < 360
        assert_agrees_with_torch(page)
    page.mouse.up()
    before = data(page)
    page.mouse.move(*place(page, -2.0))
    assert data(page) == before
