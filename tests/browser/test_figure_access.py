"""Figures for those who do not see or do not use them: a name, a sentence on their state, and the whole in words."""

import importlib
from pathlib import Path

import pytest

from caracal_book import viz

MODULES = sorted({path.stem for path in Path(viz.__file__).parent.glob("*.js")} - {"drawing"})
LONGEST = 160  # characters of a sentence that is heard again and again
REST = 1200  # milliseconds, more than a figure waits

_COUNT = """node => { window.said = []; new MutationObserver(() => window.said.push(node.textContent))
    .observe(node, { childList: true, characterData: true, subtree: true }); }"""


@pytest.mark.parametrize("module", MODULES)
def test_a_figure_says_its_state_when_the_reader_rests(module, show):
    page = show(importlib.import_module(f"test_{module}").FIGURE)
    said = page.get_by_role("status")
    first = said.inner_text()
    assert 10 < len(first) <= LONGEST and first.endswith(".")
    assert page.locator("[aria-live]:not([aria-live=off])").count() == 0, "a second voice would speak on every step"
    said.evaluate(_COUNT)
    figure = page.locator(".caracal-live")
    for control in figure.locator("input[type=range], [role=slider], [tabindex='0']").all():
        control.focus()
        for key in ("ArrowRight", "ArrowUp", "ArrowRight", "ArrowUp", "PageUp"):
            page.keyboard.press(key)
        page.wait_for_timeout(REST)
        spoken = page.evaluate("window.said")
        if spoken:
            break
    assert len(spoken) == 1 and spoken[0] != first and len(spoken[0]) <= LONGEST


@pytest.mark.parametrize("module", MODULES)
def test_a_figure_has_a_short_name_and_stands_in_words(module, show):
    figure = importlib.import_module(f"test_{module}").FIGURE
    page = show(figure)
    name = f"Figure: {module.replace('_', ' ')}"
    group = page.get_by_role("group", name=name, exact=True).first
    assert group.is_visible()
    words = page.get_by_text(figure.alt, exact=True)
    assert not words.is_visible()
    page.locator(".caracal-words summary").press("Enter")
    assert words.is_visible()
