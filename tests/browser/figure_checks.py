"""What is wrong with the figures and the code of a chapter, as functions from a page to lists of problems."""

import re

from page_checks import DESK, PHONE

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


def frame_problems(page) -> list[str]:
    """Figures have one width and one frame, and tables are as wide, on a desk and on a phone."""
    problems = []
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        frames = page.evaluate(_FRAMES)
        if len(set(frames)) != 1 or not frames[0].startswith("0 0 "):
            problems.append(f"{size['width']}: frames {sorted(set(frames))}")
            continue
        tables = page.locator(".bd-article .pst-scrollable-table-container").evaluate_all(
            "nodes => nodes.map(node => node.getBoundingClientRect().width)")
        if not set(tables) <= {float(frames[0].split()[2])}:
            problems.append(f"{size['width']}: tables {sorted(set(tables))} beside {frames[0]}")
    page.set_viewport_size(DESK)
    return problems


def caption_problems(page, chapter: int) -> list[str]:
    """Every figure has a caption, numbered in order, and no output has a picture that is no figure."""
    said = page.locator("figure.book-figure > figcaption").all_inner_texts()
    numbers = [found[1] if (found := re.match(r"Figure (\d+\.\d+)\.\s.{20}", words, re.DOTALL)) else words[:40]
               for words in said]
    problems = [] if numbers == [f"{chapter}.{k}" for k in range(1, len(said) + 1)] else [f"captions {numbers}"]
    shown = page.locator(".cell_output .caracal-figure, .cell_output .plot").count()
    if not shown == page.locator("figure.book-figure").locator(".caracal-figure, .plot").count() == len(said):
        problems.append(f"{shown} figures, {len(said)} captions")
    return problems + page.locator(".cell_output img:not(.caracal-figure img, .plot img)").evaluate_all(_OTHERS)


def plot_problems(page) -> list[str]:
    """A plot is that of the theme, light on paper, centred on its ground."""
    problems = [] if page.locator(".plot").count() else ["no plot"]
    for media, theme, shown in (("screen", "light", "light"), ("screen", "dark", "dark"), ("print", "dark", "light")):
        page.emulate_media(media=media)
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        problems += [f"{media}, {theme}: {found}" for found in
                     set(page.evaluate(_PLOTS)) - {f"1 {shown}.svg true true rgba(0, 0, 0, 0) none"}]
    page.emulate_media(media="screen")
    return problems


def screen_problems(page, height: int) -> list[str]:
    """A live figure and its controls stand on one screen."""
    page.wait_for_selector(".caracal-figure[data-ready]")
    found = page.eval_on_selector_all(".caracal-live", _TALL)
    return [f"{figure} is {tall} high" for figure, tall in found if tall > height] if found else ["no live figure"]


def fade_problems(page) -> list[str]:
    """Code fades at the edge behind which more of it follows, and some of it does."""
    wider = page.evaluate(_CODE)
    problems = [] if any(wider) else ["no code is wider than the page"]
    for far in (False, True):
        fades = page.eval_on_selector_all("div.cell_input pre", _FADES, far)
        wanted = [[far and wide, not far and wide] for wide in wider]
        problems += [f"block {i}, scrolled {far}: fades {is_}" for i, (is_, should) in
                     enumerate(zip(fades, wanted, strict=True)) if is_ != should]
    return problems
