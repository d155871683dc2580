"""The time budget in a real browser: sliders, devices, models, and its counts against those of the package."""

import itertools

import pytest
from figure_pages import data

from caracal_book import viz
from caracal_book.numbers.cost import DEVICES
from caracal_book.viz.time_budget import _costs, _times

pytestmark = pytest.mark.browser

FIGURE = viz.time_budget("pure", 512, "A100")
NAMES = {"hybrid": "hybrid Caracal", "pure": "pure Caracal", "llama": "Llama"}


def slider(page, name):
    return page.get_by_role("slider", name=name, exact=True)


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def assert_agrees_with_the_package(shown):
    start = shown["setting"]
    for model, parts in _costs(start).items():
        for part, cost in parts.items():
            assert shown["counts"][model][part] == pytest.approx(cost._asdict(), rel=1e-12)
            told = shown["times"][model][part]
            assert told["time"] == pytest.approx(_times(start)[model][part], rel=1e-12)
            assert told["bound"] == DEVICES[start["device"]].bound(part, cost)


def test_counts_equal_the_package_over_many_settings(page):
    seen = 0
    for width, k in itertools.product((256, 4096), (6, 12, 17)):
        slider(page, "width D").fill(str(width))
        slider(page, "length").fill(str(k))
        for device, way, small in (("T4", "library FFTs", "in chains"), ("H200", "one fused operator", "one by one")):
            if way == "one fused operator" and k == 17:
                continue
            for name in (device, way, small):
                press(page, name)
            shown = data(page)
            assert (shown["setting"]["width"], shown["setting"]["length"]) == (width, 2**k)
            assert (shown["setting"]["device"], shown["setting"]["fused"]) == (device, way != "library FFTs")
            assert shown["setting"]["compiled"] is (small == "in chains")
            assert_agrees_with_the_package(shown)
            seen += 1
    assert seen == 10


def test_by_keyboard_alone(page):
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText"))
    assert [name.split(",")[0] for name in order[:3]] == list(NAMES.values())
    assert order[3:5] == ["length", "width D"] and order[5:] == [
        "T4", "RTX 3090", "RTX 4090", "A100", "H200", "one by one", "in chains", "library FFTs", "one fused operator"]
    page.keyboard.press("Enter")
    assert data(page)["setting"]["fused"] is True
    slider(page, "length").focus()
    for key, length in (("End", 131072), ("Home", 64), ("ArrowRight", 128), ("ArrowLeft", 64)):
        page.keyboard.press(key)
        assert data(page)["setting"]["length"] == length
        assert_agrees_with_the_package(data(page))
    assert slider(page, "length").get_attribute("aria-valuetext") == "64 tokens"
