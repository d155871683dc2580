"""A finger on the figures: what can be dragged follows it, and everywhere else it scrolls the page."""

import importlib
import math
from pathlib import Path

import pytest
from figure_pages import data, page_width, write_page

from caracal_book import viz

MOVES = 20
PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
NAMES = sorted({path.stem for path in Path(viz.__file__).parent.glob("*.js")} - {"drawing"})
FIGURES = {name: importlib.import_module(f"test_{name}").FIGURE for name in NAMES}

# What can be dragged: the figure, the node, the way of the finger, and what the data hold of it.
DRAGS = [
    ("antidiagonals", ".caracal-grip", "down", "v"), ("antidiagonals", ".anti-bars", "across", "t"),
    ("clock", ".caracal-grip", "down", "v"), ("clock", ".clock-hand", "around", "hour"),
    ("meeting", ".meet-bars", "across", "t"), ("poke", ".caracal-grip", "down", "v"),
    ("roots", ".turn", "around", "degrees"),
    ("schedule", ".sch-time >> nth=0", "across", "n"), ("schedule", ".sch-time >> nth=1", "across", "n"),
    ("sight", "svg", "across", "output"), ("toeplitz_kernel", ".caracal-grip", "down", "g"),
    ("weighted_sum", ".caracal-grip", "down", "x"), ("weighted_sum", ".sum-pick >> nth=1", "across", "row"),
]
GRIPS = ".caracal-grip, .clock-hand, .turn"

_COUNT = """() => {
  window.heard = { moves: 0, lost: 0 };
  addEventListener('pointermove', () => heard.moves++, true);
  addEventListener('pointercancel', () => heard.lost++, true);
}"""
# A point of each drawing, and of the line of help, that is further from every grip than a finger is wide.
_FREE = """([grips, finger]) => [...document.querySelectorAll('.caracal-live > p, .caracal-live svg')].flatMap(node => {
  const taken = [...node.querySelectorAll(grips)].map(grip => grip.getBoundingClientRect());
  const free = (x, y) => taken.every(grip => x < grip.left - finger || x > grip.right + finger
    || y < grip.top - finger || y > grip.bottom + finger);
  const box = node.getBoundingClientRect();
  for (let y = box.top + 8; y < box.bottom; y += 8)
    for (let x = box.left + 8; x < box.right; x += 8)
      if (free(x, y) && node.contains(document.elementFromPoint(x, y))) return [[x, y + scrollY]];
  return [];
})"""


@pytest.fixture
def touch(open_figure, tmp_path):
    """A function that opens a figure above a long page on a phone; it returns the page and a function that draws a
    finger along points of the window."""

    def start(figure):
        page = open_figure(write_page(tmp_path, figure.to_html() + '<p style="height: 3000px">The end.</p>'), **PHONE)
        session = page.context.new_cdp_session(page)

        def draw(points):
            for kind, (x, y) in zip(["touchStart"] + ["touchMove"] * (len(points) - 1), points, strict=True):
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
            session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        return page, draw

    return start


def way(box: dict, kind: str) -> list[tuple[float, float]]:
    """The points of a drag: 30 pixels down from the middle, all across, or 80 degrees around."""
    x, y, share = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, [k / MOVES for k in range(MOVES + 1)]
    if kind == "down":
        return [(x, y + 30 * s) for s in share]
    if kind == "across":
        return [(box["x"] + box["width"] * (0.25 + 0.5 * s), y) for s in share]
    radius, angles = 0.3 * box["width"], [math.radians(80 * s - 90) for s in share]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


@pytest.mark.parametrize("name, node, kind, key", DRAGS, ids=[f"{name}, {key}" for name, _, _, key in DRAGS])
def test_a_drag_follows_the_finger(name, node, kind, key, touch):
    page, draw = touch(FIGURES[name])
    grip = page.locator(f".caracal-live {node}").first
    grip.scroll_into_view_if_needed()
    page.evaluate(_COUNT)
    before, place = data(page)[key], page.evaluate("scrollY")
    draw(way(grip.bounding_box(), kind))
    assert page.evaluate("heard") == {"moves": MOVES, "lost": 0}
    assert page.evaluate("scrollY") == place
    assert data(page)[key] != before


@pytest.mark.parametrize("name", FIGURES)
def test_a_swipe_beside_the_grips_scrolls_the_page(name, touch):
    page, draw = touch(FIGURES[name])
    points = page.evaluate(_FREE, [GRIPS, 12])
    assert points
    for x, y in points:
        start = page.evaluate("y => { scrollTo(0, y); return scrollY; }", max(0, y - 600))
        draw([(x, y - start - 12 * k) for k in range(MOVES)])
        page.wait_for_function("start => scrollY > start + 100", arg=start, timeout=5_000)


@pytest.mark.parametrize("name, node", [(name, node) for name, node, kind, _ in DRAGS if kind == "across"]
                         + [("weighted_sum", ".sum-pick >> nth=0"), ("mixing_matrices", ".mix-matrix")])
def test_what_is_dragged_across_is_swiped_past(name, node, touch):
    page, draw = touch(FIGURES[name])
    field = page.locator(f".caracal-live {node}").first
    field.scroll_into_view_if_needed()
    box, start = field.bounding_box(), page.evaluate("scrollY")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    draw([(x, y - 12 * k) for k in range(MOVES)])
    page.wait_for_function("start => scrollY > start + 100", arg=start, timeout=5_000)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_and_its_controls_stand_on_one_screen(name, touch):
    page, _ = touch(FIGURES[name])
    panels = page.locator(".why-panels > section").all() or [page.locator(".caracal-live")]  # each has its controls
    for button in page.locator(".caracal-live").get_by_role("button").all()[:8]:        # the steps of a figure, too
        assert max(panel.bounding_box()["height"] for panel in panels) <= PHONE["viewport"]["height"]
        if not button.text_content().startswith("Load "):         # weights, which are not there
            button.click()
    assert page_width(page) <= PHONE["viewport"]["width"]
