"""What is wrong with the face, the figures and the code of a chapter, as functions from a page to lists of problems."""

import re

from page_checks import DESK, PHONE

SMALL_DESK = {"width": 1200, "height": 900}
MEASURE = 42 * 16  # pixels of the longest line of prose

_TOP = "node => node.getBoundingClientRect().top + scrollY"
_PROSE = """() => Math.max(...[...document.querySelectorAll('.bd-article > section p, .bd-article > section li')]
    .filter(node => !node.closest('table, figure, .cell, .caracal-figure, dd') && node.checkVisibility())
    .map(node => node.getBoundingClientRect().width))"""

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
# Of each block of code or output: its longest line, how far that runs over unless it wraps, whether the block scrolls.
_CODE = """() => [...document.querySelectorAll('article .highlight pre')].filter(n => n.checkVisibility()).map(node => {
    const columns = Math.max(...node.textContent.split('\\n').map(line => line.length));
    const scrolls = node.scrollWidth > node.clientWidth, before = node.style.whiteSpace;
    node.style.whiteSpace = 'pre';
    const over = node.scrollWidth - node.clientWidth;
    node.style.whiteSpace = before;
    return [columns, over, scrolls]; })"""


def face_problems(page, heading: str, verdicts: dict[str, str]) -> list[str]:
    """Question and drawing begin on the first screen, then comes the live figure; set-up and imports are not shown.

    The page says its `heading` and links its solutions; boxes say what the ledger says, its `verdicts` by number.
    """
    problems = []
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        # On a phone the live figure may begin a line below the first screen.
        for drawing, lowest in ((".tag_where-we-stand .plot", size["height"] - 200),
                                (".caracal-figure[data-ready]", size["height"] + 50)):
            top = page.locator(drawing).first.evaluate(_TOP)
            if top >= lowest:
                problems.append(f"{drawing} begins at {top:.0f} of {size['height']} pixels")
    page.set_viewport_size(DESK)
    if page.get_by_text("%pip install").count() or page.locator("details.hide").first.get_attribute("open") is not None:
        problems.append("set-up or imports are shown")
    if not 300 < (width := page.evaluate(_PROSE)) <= MEASURE:
        problems.append(f"prose is {width:.0f} pixels wide")
    if (said := page.locator("h1 .chapter-number").first.inner_text()) != heading:
        problems.append(f"{said} in the place of {heading}")
    if (link := page.locator(".to-solutions a").evaluate("node => node.href")) != page.url.replace(
            "/notebooks/", "/book/solutions/"):
        problems.append(f"solutions at {link}")
    chips = page.locator("blockquote.claim-box .claim-verdicts .verdict").all_text_contents()
    return problems + [chip for chip in chips if chip not in (f"Claim {n}: {said}" for n, said in verdicts.items())]


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


def caption_problems(page, chapter: str) -> list[str]:
    """Every figure has a caption, numbered in order, and no output has a picture that is no figure."""
    said = page.locator("figure.book-figure > figcaption").all_inner_texts()
    numbers = [found[1] if (found := re.match(r"Figure (\w+\.\d+)\.\s.{20}", words, re.DOTALL)) else words[:40]
               for words in said]
    problems = [] if numbers == [f"{chapter}.{k}" for k in range(1, len(said) + 1)] else [f"captions {numbers}"]
    figures = ".cell:not(.tag_where-we-stand) .cell_output"
    shown = page.locator(f"{figures} .caracal-figure, {figures} .plot").count()
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


def code_problems(page) -> list[str]:
    """On a desk a line of 88 columns does not wrap; there and on a phone no block of code or output scrolls."""
    problems = []
    for size in (SMALL_DESK, DESK, PHONE):
        page.set_viewport_size(size)
        blocks = page.evaluate(_CODE)
        problems += [f"{size['width']}: a block scrolls sideways" for *_, scrolls in blocks if scrolls]
        if size is not PHONE:
            problems += [f"{size['width']}: {columns} columns run over by {over} pixels" for columns, over, _ in blocks
                         if over > 0 and columns <= 88]
    page.set_viewport_size(DESK)
    return problems if blocks else ["no code"]
