"""What every figure owes its reader: it fits, stands out, says its state, keeps step with Python, and has words."""

import re

import pytest
from engine_pages import PAGE_ONLY
from figure_pages import PAGE, contrast, data, page_width, write_page
from figures import MADE, NAMES, figure
from test_access import violations

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 780}
LONGEST = 160  # characters of a sentence that is heard again and again
REST = 1200    # milliseconds, more than a figure waits before it speaks

_COUNT = """node => { window.said = []; new MutationObserver(() => window.said.push(node.textContent))
    .observe(node, { childList: true, characterData: true, subtree: true }); }"""
# Axe reads the colour of HTML text; that of text in a drawing is its fill, here where it stands on the paper itself.
_FILLS = """live => [...live.querySelectorAll('svg > text, svg > g > text')]
    .filter(node => node.checkVisibility() && node.textContent.trim()).map(node => getComputedStyle(node).fill)"""


def test_every_module_has_a_figure_here():
    assert sorted(MADE) == NAMES


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_on_a_phone(name, theme, show):
    page = show(figure(name), theme=f'data-theme="{theme}"', viewport=PHONE)
    assert page_width(page) <= PHONE["width"]
    assert [line for line in violations(page) if line[0] not in PAGE_ONLY] == []
    live = page.locator(".caracal-live")
    paper = live.evaluate("node => getComputedStyle(node).backgroundColor")
    # The numerals of the clock and of the table stand on shapes of their own colour.
    if name not in ("antidiagonals", "clock"):
        assert min((contrast(fill, paper) for fill in live.evaluate(_FILLS)), default=21) >= 4.5
    assert page.get_by_role("group", name=f"Figure: {name.replace('_', ' ')}", exact=True).first.is_visible()
    words = page.get_by_text(figure(name).alt, exact=True)
    assert not words.is_visible()
    page.locator(".caracal-words summary").press("Enter")
    assert words.is_visible()


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_its_state_when_the_reader_rests(name, show):
    page = show(figure(name))
    said = page.get_by_role("status")
    first = said.inner_text()
    assert 10 < len(first) <= LONGEST and first.endswith(".")
    assert page.locator("[aria-live]:not([aria-live=off])").count() == 0, "a second voice would speak on every step"
    said.evaluate(_COUNT)
    for control in page.locator(".caracal-live :is(input[type=range], [role=slider], [tabindex='0'])").all():
        control.focus()
        for key in ("ArrowRight", "ArrowUp", "ArrowRight", "PageUp"):
            page.keyboard.press(key)
        page.wait_for_timeout(REST)
        spoken = page.evaluate("window.said")
        if spoken:
            break
    assert len(spoken) == 1 and spoken[0] != first and len(spoken[0]) <= LONGEST


@pytest.mark.parametrize("name", ["time_budget", "poke"])  # one with a still, one of data that no still shows
def test_without_scripts_the_still_or_the_words_are_shown(name, open_figure, tmp_path):
    page = open_figure(write_page(tmp_path, figure(name).to_html()), scripts=False)
    image = page.locator(".caracal-still")
    if image.get_attribute("src"):
        assert image.is_visible() and 250 < image.bounding_box()["width"] <= 360
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0  # valid SVG
    else:
        assert page.get_by_text(figure(name).alt, exact=True).is_visible() and not image.is_visible()
    assert page.locator("[role=slider], input, select").count() == 0
    assert page.locator(".caracal-live").bounding_box() is None


# A model as a kernel has it: it counts what is saved, and `set` gives a value the way a message from Python does.
_KERNEL = """<div class="caracal-figure"><style>{css}</style><div id="el"></div></div><script type="module">{source}
class Model {{
  constructor(state) {{ Object.assign(this, {{ state, heard: {{}}, saved: 0 }}); }}
  get(key) {{ return this.state[key]; }}
  set(key, value) {{ this.state[key] = value; (this.heard["change:" + key] ?? []).forEach((f) => f()); }}
  on(event, f) {{ (this.heard[event] ??= []).push(f); }}
  save_changes() {{ this.saved += 1; }}
}}
window.open_one = (state) => {{
  const host = document.createElement("div"), el = host.appendChild(document.createElement("div"));
  host.className = "caracal-figure";
  document.body.append(host);
  const model = new Model(structuredClone(state));
  render({{ model, el }});
  return {{ model, host, el }};
}};
window.ready = true;
</script>"""


def touch_everything(page):
    """Give every control the focus once and press keys on it, as far as it still is there; no weights are loaded."""
    controls = page.locator(".caracal-live :is(input, select, button, [tabindex='0'])")
    for k in range(controls.count()):
        control = controls.nth(k)
        if not control.count() or control.evaluate("c => c.disabled || /^(Start again|Load )/.test(c.textContent)"):
            continue
        control.focus()
        presses = control.evaluate("c => c.localName === 'button'")
        for key in ("ArrowRight", "ArrowUp", "PageUp", *["Enter"] * presses):
            page.keyboard.press(key)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_keeps_step_with_python_both_ways(name, look, tmp_path):
    made = figure(name)
    names = re.search(r"inStep\(model, \[(.*?)\]", made._source)[1]
    assert tuple(re.findall(r'"(\w+)"', names)) == made.state
    page, problems = look(size={"width": 800, "height": 900}), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(write_page(tmp_path, _KERNEL.format(css="\n".join(made._css.values()), source=made._source)))
    page.wait_for_function("window.ready")
    page.evaluate("state => { window.one = open_one(state); }", made.model)
    first, before = page.evaluate("[{ ...one.host.dataset }, structuredClone(one.model.state)]")
    assert page.evaluate("one.model.saved") == 0, "a figure that nobody touched has nothing to tell"

    # What the reader changes reaches the model, and a figure of that state is the same picture.
    touch_everything(page)
    after = page.evaluate("one.model.state")
    changed = {key for key in before if before[key] != after[key]}
    assert changed and changed <= set(made.state) and page.evaluate("one.model.saved") > 0
    shown = page.evaluate("({ ...one.host.dataset })")
    assert page.evaluate("({ ...open_one(one.model.state).host.dataset })") == shown != first

    # What Python sets moves a fresh figure there, and its reader back to the start.
    page.evaluate("state => { window.two = open_one(state); }", made.model)
    page.evaluate("keys => keys.forEach((key) => two.model.set(key, structuredClone(one.model.get(key))))", made.state)
    assert page.evaluate("({ ...two.host.dataset })") == shown
    again = page.locator(".caracal-figure").nth(3).get_by_role("button", name="Start again")
    if again.count():
        again.click()
        assert page.evaluate("({ ...two.host.dataset })") == first
    assert problems == []


@pytest.mark.parametrize("attributes, dark", [('class="vscode-dark" data-vscode-theme-kind="vscode-dark"', True),
                                              ('data-jp-theme-light="true"', False)])
def test_the_theme_of_an_editor_is_followed(attributes, dark, look, tmp_path):
    page = look(theme="light" if dark else "dark")
    address = write_page(tmp_path, figure("schedule").to_html())
    path = tmp_path / "figure.html"
    path.write_text(path.read_text("utf-8").replace("<body>", f"<body {attributes}>"), encoding="utf-8")
    page.goto(address)
    page.wait_for_selector(".caracal-figure[data-ready]")
    paper, ink = page.eval_on_selector(
        ".caracal-live", "live => ['backgroundColor', 'color'].map((c) => getComputedStyle(live)[c])")
    white = "rgb(255, 255, 255)"
    assert (contrast(paper, white) > contrast(ink, white)) == dark


def test_it_works_in_a_sandboxed_frame_and_beside_its_twin(page, tmp_path):
    """As in Colab, where a figure has an opaque origin."""
    inner = PAGE.format(theme="", body=2 * figure("clock").to_html()).replace("&", "&amp;").replace('"', "&quot;")
    frame = '<iframe sandbox="allow-scripts" width="700" height="2400" srcdoc="{}"></iframe>'
    page.goto(write_page(tmp_path, frame.format(inner)))
    frame = page.frame_locator("iframe")
    frame.locator(".caracal-figure[data-ready]").nth(1).wait_for()
    frame.locator("input[value=i]").nth(1).check(force=True)
    checked = frame.locator("input[type=radio]:checked")
    assert [checked.nth(k).get_attribute("value") for k in range(checked.count())] == ["1", "i"]


MOVES = 20


@pytest.fixture
def touch(open_figure, tmp_path):
    """A function that opens a figure above a long page on a phone, and one that draws a finger along points."""

    def start(name):
        page = open_figure(write_page(tmp_path, figure(name).to_html() + '<p style="height: 3000px">The end.</p>'),
                           viewport=PHONE, has_touch=True, is_mobile=True)
        session = page.context.new_cdp_session(page)

        def draw(points):
            for kind, (x, y) in zip(["touchStart"] + ["touchMove"] * (len(points) - 1), points, strict=True):
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
            session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        return page, draw

    return start


def middle(page, node: str) -> tuple[float, float]:
    """The middle of a part of the figure, scrolled into view."""
    found = page.locator(f".caracal-live {node}").first
    found.scroll_into_view_if_needed()
    box = found.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_drag_follows_the_finger_and_the_page_stands_still(touch):
    page, draw = touch("poke")
    (x, y), before, place = middle(page, ".caracal-grip"), data(page)["v"], page.evaluate("scrollY")
    draw([(x, y + 30 * k / MOVES) for k in range(MOVES + 1)])
    assert page.evaluate("scrollY") == place and data(page)["v"] != before


def test_a_swipe_over_a_figure_scrolls_the_page(touch):
    page, draw = touch("schedule")
    (x, y), start = middle(page, ".sch-time >> nth=0"), page.evaluate("scrollY")
    draw([(x, y - 12 * k) for k in range(MOVES)])
    page.wait_for_function("start => scrollY > start + 100", arg=start, timeout=5_000)
