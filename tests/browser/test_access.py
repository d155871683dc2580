"""How pages are asked by the rules of axe: names, roles, contrast, order, reach by keyboard.

`test_pages` asks every page so, and `test_figures` every figure.
"""

from collections.abc import Sequence

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from figures import figure
from page_checks import THEMED

pytestmark = pytest.mark.browser

OF_COLOUR = ["color-contrast", "link-in-text-block"]

# Thousands of words in code and formulas look alike, and contrast takes axe a millisecond for each.  There it is asked
# of the first word of each look: equal in what colours it and in what colours all that it stands in.  Of signs axe
# knows only some, so equal signs alone are alike.
ALIKE = "pre *, math *, dl.py *"
_REPEATED = """where => {
  const WHAT = ['color', 'backgroundColor', 'backgroundImage', 'backgroundClip', 'opacity', 'filter', 'mixBlendMode',
                'fontFamily', 'fontSize', 'fontWeight', 'textShadow', 'display', 'visibility', 'position', 'overflow'];
  const looks = new Map(), numbers = new Map(), seen = new Set();
  const number = key => numbers.get(key) ?? numbers.set(key, numbers.size + 1).get(key);
  const look = node => {
    if (node && !looks.has(node)) {
      const style = getComputedStyle(node);
      looks.set(node, number([look(node.parentElement), ...WHAT.map(name => style[name])].join()));
    }
    return looks.get(node);
  };
  for (const node of document.querySelectorAll('[data-repeated]')) node.removeAttribute('data-repeated');
  for (const node of document.querySelectorAll(where)) {
    const own = [...node.childNodes].filter(child => child.nodeType === Node.TEXT_NODE).map(text => text.data).join('');
    const key = [look(node), node.checkVisibility(), /\\w\\w/.test(own) || own.trim()].join();
    node.toggleAttribute('data-repeated', seen.has(key));
    seen.add(key);
  }
}"""
_AXE = """async ([options, selector]) => {
  axe.configure({ rules: [{ id: 'color-contrast', selector }] });
  const { violations } = await axe.run({ ...options, resultTypes: ['violations'], preload: false });
  return violations.flatMap(rule => rule.nodes.map(({ target, html, any }) => [
      rule.id, target.join(' '), html.slice(0, 120), any[0]?.data?.fgColor, any[0]?.data?.bgColor]));
}"""


def violations(page, rules: list[str] | None = None, alike: str = ALIKE, but: Sequence[str] = ()) -> list[list[str]]:
    """Return, for each thing that axe finds wrong, the rule, the element, its HTML, and the colours if it has them.

    All rules are asked, or `rules`, or all but some.  Contrast inside `alike`, a selector, is asked once for each look.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    page.evaluate(_REPEATED, alike)
    options = {"rules": {rule: {"enabled": False} for rule in but}}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    return page.evaluate(_AXE, [options, "*:not([data-repeated])"])


def show_theme(page, theme: str) -> None:
    """Ask a page for a theme, as a system that turns dark in the evening does."""
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(THEMED, arg=theme)


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


@pytest.mark.parametrize("rest", [True, False], ids=["rest", "motion"])
def test_no_figure_moves_for_those_who_ask_for_rest(rest, show):
    """A change is drawn in one step at rest, and in many where motion is welcome."""
    page = show(figure("clock"), reduced_motion="reduce" if rest else "no-preference")
    live = page.locator(".caracal-live")
    drawings = live.evaluate(_DRAWINGS)
    assert drawings <= 2 if rest else drawings > 3
    assert not rest or page.evaluate(_RUNNING) == 0
