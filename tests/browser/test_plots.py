"""Figures on the built pages: one width, one frame and a caption, live or still, in both themes and on paper."""

import re

import pytest
from page_checks import DESK, PHONE, Visit, unfold
from test_face import CHAPTERS

_FRAMES = """() => [...document.querySelectorAll('.book-figure .caracal-live, .book-figure .plot')].map(node => {
    const box = node.getBoundingClientRect(), look = getComputedStyle(node), around = node.closest('figure');
    return [box.left - around.getBoundingClientRect().left, box.width - around.getBoundingClientRect().width, box.width,
            look.backgroundColor, look.borderTopColor, look.borderTopWidth, look.borderRadius].join(' ') })"""
_PLOTS = """() => [...document.querySelectorAll('.plot')].map(plot => {
    const shown = [...plot.querySelectorAll('img')].filter(node => node.checkVisibility());
    const [a, b] = [plot, shown[0]].map(node => node.getBoundingClientRect()), look = getComputedStyle(shown[0]);
    const aside = Math.abs(a.left + a.right - b.left - b.right);
    return [shown.length, shown[0].getAttribute('src').replace(/.*-on-/, ''), aside < 2, a.left <= b.left,
            look.backgroundColor, look.filter].join(' ') })"""
_OTHERS = "nodes => nodes.map(node => node.outerHTML)"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", CHAPTERS)
def test_figures_have_one_width_and_one_frame(name, theme, page, site):
    page.emulate_media(color_scheme=theme)
    Visit(page, f"{site}/{name}")
    unfold(page)
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        frames = page.evaluate(_FRAMES)
        assert len(set(frames)) == 1, set(frames)
        assert frames[0].startswith("0 0 "), f"the frame is not that of its figure: {frames[0]}"
        tables = page.locator(".bd-article .pst-scrollable-table-container").evaluate_all(
            "nodes => nodes.map(node => node.getBoundingClientRect().width)")
        assert set(tables) <= {float(frames[0].split()[2])}


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_figure_has_its_caption(name, page, site):
    Visit(page, f"{site}/{name}")
    unfold(page)
    said = page.locator("figure.book-figure > figcaption").all_inner_texts()
    numbers = [re.match(r"Figure (\d+\.\d+)\.\s.{20}", words, re.DOTALL)[1] for words in said]
    assert numbers == [f"{int(name[10:12])}.{k}" for k in range(1, len(said) + 1)]
    shown = page.locator(".cell_output .caracal-figure, .cell_output .plot").count()
    assert shown == page.locator("figure.book-figure").locator(".caracal-figure, .plot").count() == len(said)
    assert page.locator(".cell_output img:not(.caracal-figure img, .plot img)").evaluate_all(_OTHERS) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_plot_is_that_of_the_theme_centred_on_its_ground(name, page, site):
    Visit(page, f"{site}/{name}")
    unfold(page)
    assert page.locator(".plot").count() > 0
    for media, theme, shown in (("screen", "light", "light"), ("screen", "dark", "dark"), ("print", "dark", "light")):
        page.emulate_media(media=media)
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        assert set(page.evaluate(_PLOTS)) == {f"1 {shown}.svg true true rgba(0, 0, 0, 0) none"}, (media, theme)
