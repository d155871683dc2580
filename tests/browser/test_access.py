"""Every page by the rules of axe: names, roles, contrast, order, reach by keyboard; desk and phone, light and dark.

What depends on colour is asked in both themes, everything else once for each width: a theme changes no element.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_checks import DESK, PHONE
from test_pages import PAGES

_THEMED = "theme => [undefined, theme].includes(document.documentElement.dataset.theme)"
OF_COLOUR = ["color-contrast", "link-in-text-block"]
# The pages of source code are written by one template, so one of them stands for all.
SOURCES = [name for name in PAGES if name.startswith("_modules/")]
ASKED = [name for name in PAGES if name not in SOURCES[1:]]
LOOKS = [(size, theme) for size in (DESK, PHONE) for theme in ("light", "dark")]


def violations(page, rules: list[str] | None = None) -> list[str]:
    """Return a line for each thing that axe finds wrong, with the element and the rule."""
    options = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{rule['id']}: {' '.join(map(str, node['target']))} {node['html'][:120]}"
            for rule in found for node in rule["nodes"]]


@pytest.fixture
def look(browser):
    """A function that opens a page at a width and in a theme."""
    contexts = []

    def start(address: str, size: dict[str, int], theme: str):
        contexts.append(browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_function(_THEMED, arg=theme)
        return page

    yield start
    for context in contexts:
        context.close()


@pytest.mark.parametrize("size, theme", LOOKS, ids=[f"{size['width']} {theme}" for size, theme in LOOKS])
@pytest.mark.parametrize("name", ASKED)
def test_axe_finds_nothing(name, size, theme, look, site):
    page = look(f"{site}/{name}", size, theme)
    assert violations(page, OF_COLOUR if theme == "dark" else None) == []


@pytest.mark.parametrize("planted, rule", [
    ("<button></button>", "button-name"), ("<img src='data:,'>", "image-alt"),
    ("<p style='color: #999; background: #fff'>Pale words</p>", "color-contrast"),
    ("<div role='doc-biblioentry'>An entry</div>", "aria-deprecated-role"), ("<p id='a'></p><p id='a'></p>", None),
])
def test_a_planted_fault_is_found(planted, rule, page):
    page.set_content(f"<html lang='en'><title>A page</title><main><h1>A page</h1>{planted}</main></html>")
    found = {line.partition(":")[0] for line in violations(page)}
    assert rule in found if rule else not found


def test_no_figure_moves_for_those_who_ask_for_rest(look, site):
    page = look(f"{site}/index.html", DESK, "light")
    slider = page.locator(".caracal-figure input[type=range]").first
    slider.focus()
    drawing = page.locator(".caracal-live svg").first  # what the figure says follows later, when the reader rests
    before = drawing.inner_html()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("([node, before]) => node.innerHTML !== before", arg=[drawing.element_handle(), before])
    shown = drawing.inner_html()
    page.wait_for_timeout(400)
    assert drawing.inner_html() == shown != before
    assert page.evaluate("document.getAnimations().length") == 0
