"""The chapters on a phone: a figure and its controls on one screen, and code that fades where more of it follows."""

import pytest
from page_checks import Visit
from test_pages import CLAIMS, PAGES

CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")] or [CLAIMS]
SCREEN = {"width": 390, "height": 780}

_TALL = "nodes => nodes.map(node => [node.closest('.caracal-figure').id, node.getBoundingClientRect().height])"
_CODE = """() => [...document.querySelectorAll('div.cell_input pre')].filter(node => node.checkVisibility())
    .map(node => { node.scrollLeft = 0; return node.scrollWidth > node.clientWidth; })"""
_FADES = """async (nodes, far) => {
  const fades = [];
  for (const node of nodes.filter(node => node.checkVisibility())) {
    node.scrollLeft = far ? node.scrollWidth : 0;
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const style = getComputedStyle(node);
    fades.push(['--fade-left', '--fade-right'].map(edge => parseFloat(style.getPropertyValue(edge)) > 20));
  }
  return fades;
}"""


@pytest.fixture
def phone(browser):
    """A page on a phone, which is touched and has no keys."""
    context = browser.new_context(viewport=SCREEN, has_touch=True, is_mobile=True, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", CHAPTERS)
def test_figures_stand_on_one_screen(name, phone, site):
    Visit(phone, f"{site}/{name}")
    phone.wait_for_selector(".caracal-figure[data-ready]")
    heights = phone.eval_on_selector_all(".caracal-live", _TALL)
    assert heights and [(figure, height) for figure, height in heights if height > SCREEN["height"]] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_fades_at_the_edge_behind_which_more_follows(name, phone, site):
    Visit(phone, f"{site}/{name}")
    wider = phone.evaluate(_CODE)
    assert any(wider)
    nodes = "div.cell_input pre"
    assert phone.eval_on_selector_all(nodes, _FADES, False) == [[False, wide] for wide in wider]
    assert phone.eval_on_selector_all(nodes, _FADES, True) == [[wide, False] for wide in wider]
