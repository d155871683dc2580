"""The parameter budget in a real browser: sliders, presets, and its counts against models of the package."""

import itertools

import pytest
import torch
from figure_pages import data

from caracal_book import viz
from caracal_book.viz.parameter_budget import _parts
from caracal_min import Caracal, CaracalConfig

pytestmark = pytest.mark.browser

FIGURE = viz.parameter_budget("tiny")
NAMES = ("width D", "layers", "heads", "vocabulary", "Fourier to attention")


def slider(page, name):
    return page.get_by_role("slider", name=name, exact=True)


def put(page, name, value):
    slider(page, name).fill(str(value))


def config_of(shown):
    c = shown["config"]
    return CaracalConfig(c["vocabulary"], c["width"], c["layers"], c["heads"], fourier_per_attention=c["ratio"])


def assert_agrees_with_the_package(shown):
    config = config_of(shown)
    with torch.device("meta"):
        model = Caracal(config)
    assert shown["total"] == sum(shown["counts"].values()) == model.num_parameters()
    assert shown["counts"] == _parts(config)
    assert shown["counts"]["embedding"] == model.embedding.weight.numel()


def test_counts_equal_real_models_over_many_configurations(page):
    """Every slider at several places, in combination: 2 * 2 * 2 * 2 models, and all heads that fit two widths."""
    seen = set()
    for width, layers, vocabulary, ratio in itertools.product((192, 1088), (1, 13), (0, 7), (0, 3)):
        for name, value in zip(NAMES, (width, layers, None, vocabulary, ratio), strict=True):
            if value is not None:
                put(page, name, value)
        assert_agrees_with_the_package(data(page))
        seen.add(str(data(page)["config"]))
    for width in (64, 768):
        put(page, "width D", width)
        for k in range(int(slider(page, "heads").get_attribute("max")) + 1):
            put(page, "heads", k)
            assert_agrees_with_the_package(data(page))
            seen.add(str(data(page)["config"]))
    assert len(seen) == 16 + 7 + 12


def test_by_keyboard_alone(page):
    order = []
    for _ in range(11):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert order[:5] == list(NAMES) and order[5].startswith("nano, 1.27M") and order[10].startswith("Large, 721.7M")
    page.keyboard.press("Enter")
    assert data(page)["preset"] == "large"
    slider(page, "heads").focus()
    for key, heads in (("End", 64), ("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        assert data(page)["config"]["heads"] == heads
        assert_agrees_with_the_package(data(page))
    slider(page, "Fourier to attention").focus()
    page.keyboard.press("Home")
    assert data(page)["config"]["ratio"] is None and data(page)["counts"]["attention"] == 0
    assert slider(page, "Fourier to attention").get_attribute("aria-valuetext") == "no attention"
