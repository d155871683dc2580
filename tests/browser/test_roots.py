"""The figure of the roots of unity in a real browser: points, squares and values against torch."""

import math

import pytest
import torch
from figure_pages import contrast, data, page_width

from caracal_book import viz

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


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt").startswith("8 points evenly spaced")
    assert still.bounding_box()["height"] > 100


def test_first_frame(page):
    shown = data(page)
    assert (shown["n"], shown["degrees"], shown["point"], shown["twist"]) == (8, 0, 1, 0)
    assert_agrees_with_torch(page)


@pytest.mark.parametrize("n, twist", [(4, math.pi / 4), (8, math.pi / 16), (6, 0.1), (3, math.pi / 6)])
def test_python_sets_the_twist(show, n, twist):
    page = show(viz.roots(n, [0.5, 1.0], twist=twist, point=n - 1))
    assert data(page)["twist"] == pytest.approx(twist, abs=1e-7)
    assert data(page)["point"] == n - 1
    assert_agrees_with_torch(page, [0.5, 1.0])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 12, 16])
def test_every_number_of_points(page, n):
    control(page, "number of points").fill(str(n))
    for degrees in (0, 90, 180, 345):
        control(page, "turn").fill(str(degrees))
        control(page, "chosen point").fill(str(n - 1))
        shown = data(page)
        assert (shown["n"], shown["degrees"], shown["point"]) == (n, degrees, n - 1)
        assert_agrees_with_torch(page)
    words = page.locator("[aria-live]").inner_text()
    assert ("N is odd" in words) == (n % 2 == 1)


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


def test_a_click_chooses_the_nearest_point(page):
    for k in (0, 3, 6):
        page.mouse.click(*place(page, -2 * math.pi * k / 8 + 0.2))
        assert (data(page)["point"], data(page)["degrees"]) == (k, 0)
        assert_agrees_with_torch(page)


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


def test_the_drawing_shows_the_numbers(page):
    """Points and squares stand on their circles where the data say; a pair shares one square."""
    control(page, "turn").fill("60")
    shown = data(page)
    for panel, name, count in ((0, "points", 8), (1, "squares", 4)):
        drawn = page.locator(".roots-panels svg").nth(panel).locator("g:last-of-type circle").evaluate_all(
            "nodes => nodes.map(n => [Number(n.getAttribute('cx')), Number(n.getAttribute('cy'))])")
        places = {(round(x / 100 * 1.4, 3), round(-y / 100 * 1.4, 3)) for x, y in drawn}
        assert places == {(round(x, 3), round(y, 3)) for x, y in shown[name]}
        assert len(places) == count


def test_start_again(page):
    first = data(page)
    control(page, "number of points").fill("5")
    control(page, "turn").fill("120")
    assert data(page) != first
    page.get_by_role("button", name="Start again").click()
    assert data(page) == first


def test_two_figures_on_a_page_are_independent(show):
    page = show(FIGURE, FIGURE)
    control(page, "number of points").nth(1).fill("5")
    assert [data(page, k)["n"] for k in (0, 1)] == [8, 5]


@pytest.mark.parametrize("width", [320, 360, 900])
def test_it_fits(open_figure, address, width):
    page = open_figure(address, viewport={"width": width, "height": 900})
    assert page_width(page) <= width
    for box in page.locator(".roots-panels svg").all():
        frame = box.bounding_box()
        assert 120 < frame["width"] and abs(frame["width"] - frame["height"]) < 1


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(viz.roots(8))
    colours = page.evaluate("""() => {
      const live = document.querySelector('.caracal-live');
      const style = (name, of) => getComputedStyle(live.querySelector(name))[of];
      return [style('.caracal-help', 'color'), style('.roots-title', 'color'),
        style('.roots-name', 'fill'), style('.caracal-facts', 'color')];
    }""")
    assert min(contrast(colour, paper) for colour in colours) >= 4.5
