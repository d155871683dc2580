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

    def start(address: str, size: dict[str, int], theme: str, motion: str = "reduce"):
        contexts.append(browser.new_context(viewport=size, color_scheme=theme, reduced_motion=motion))
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


# What runs by the clock: the edges of code fade by how far it is scrolled.
_RUNNING = "() => document.getAnimations().filter(one => one.timeline instanceof DocumentTimeline).length"
_DRAWINGS = """(live) => new Promise(done => {
  const seen = new Set();
  let frames = 0;
  const look = () => {
    seen.add([...live.querySelectorAll('svg')].map(node => node.innerHTML).join());
    if (++frames < 40) requestAnimationFrame(look); else done(seen.size);
  };
  live.querySelector('.caracal-grip, .clock-hand').focus();
  live.querySelector('.caracal-grip, .clock-hand').dispatchEvent(
      new KeyboardEvent('keydown', { key: 'PageUp', bubbles: true }));
  look();
})"""


@pytest.mark.parametrize("figure, name", [("clock", "notebooks/03_wrap_around.html"),
                                          ("poke", "notebooks/04_causal_convolution.html")])
@pytest.mark.parametrize("rest", [True, False], ids=["rest", "motion"])
def test_no_figure_moves_for_those_who_ask_for_rest(figure, name, rest, look, site):
    """A change is drawn in one step at rest, and in many where motion is welcome."""
    page = look(f"{site}/{name}", DESK, "light", "reduce" if rest else "no-preference")
    live = page.locator(f".caracal-figure[id^='caracal-{figure}'] .caracal-live").first
    live.scroll_into_view_if_needed()
    drawings = live.evaluate(_DRAWINGS)
    assert drawings <= 2 if rest else drawings > 3
    assert not rest or page.evaluate(_RUNNING) == 0
