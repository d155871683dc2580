"""Every figure keeps what a reader changes in step with its model, both ways, as a widget needs it."""

import re

import pytest
import torch
from engine_pages import small_model
from figure_pages import write_page

from caracal_book import viz
from caracal_book.viz.figure import _css
from caracal_min.modules import MultiHeadFourier

V = torch.tensor([1.0, 0.5, 1.5, 0.8])
WORDS = "the cat sat on".split()
LOG = [{"step": step, "loss": 3.0 - 0.01 * step, "validation_loss": 3.1 - 0.01 * step} for step in range(1, 41)]
SAMPLES = [{"step": step, "text": f"text {step}"} for step in (0, 20, 40)]


def figures():
    torch.manual_seed(0)
    kernel = torch.rand(6, 6).tril()
    return {
        "antidiagonals": viz.antidiagonals(torch.tensor([1, 2, 0]), torch.tensor([3, 1, 2])),
        "change": viz.change_gates(small_model(n_layers=3), "The cat and", ["An ocean in it"], name="nimble"),
        "clock": viz.clock(V, V.flip(0), n=5),
        "continuation": viz.continuation(small_model(n_layers=3), "The cat", name="nimble", words=4),
        "fourier_shapes": viz.fourier_shapes(MultiHeadFourier(4, 2), torch.randn(4, 4), WORDS),
        "live": viz.live(lambda n, word: word * n, "a word, repeated", n=range(1, 5), word=["a", "b"]),
        "matrices": viz.matrices(small_model(n_layers=3), "The cat and the", "An ocean", name="nimble"),
        "meeting": viz.meeting("abcdeedcba", t=5),
        "mixing_matrices": viz.mixing_matrices("sphinx", {"a": kernel.softmax(-1).tril(), "b": torch.eye(6)},
                                               {"c": torch.randn(6), "d": torch.ones(6)}, row=4, column=2),
        "parameter_budget": viz.parameter_budget(),
        "poke": viz.poke(V, V.flip(0)),
        "remember": viz.remember(small_model(n_layers=3), "The cat and", 8, 12, name="nimble"),
        "roots": viz.roots(8, [1.0, 2.0, 0.5]),
        "schedule": viz.schedule(16, 5),
        "sight": viz.sight(),
        "time_budget": viz.time_budget(),
        "toeplitz_kernel": viz.toeplitz_kernel(V, V.flip(0), row=2, column=1),
        "training_run": viz.training_run(LOG, SAMPLES),
        "weighted_sum": viz.weighted_sum(WORDS, [0.5, 1.0, -0.5, 0.2]),
        "why": viz.why(small_model(n_layers=3), "The cat and the", name="nimble"),
    }


FIGURES = figures()
# A model as a kernel has it: it counts what is saved, and `given` sets a value the way a message from Python does.
PAGE = """<div class="caracal-figure"><style>{css}</style><div id="el"></div></div><script type="module">{source}
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


@pytest.fixture(params=FIGURES)
def name(request):
    return request.param


@pytest.fixture
def bench(name, browser, tmp_path):
    """A page on which a figure can be opened from any state; one is open."""
    context = browser.new_context(viewport={"width": 800, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(write_page(tmp_path, PAGE.format(css=_css(), source=FIGURES[name]._source)))
    page.wait_for_function("window.ready")
    page.evaluate("state => { window.one = open_one(state); }", FIGURES[name].model)
    yield page
    context.close()
    assert problems == []


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


def test_python_knows_what_the_figure_changes(name):
    names = re.search(r"inStep\(model, \[(.*?)\]", FIGURES[name]._source)[1]
    assert tuple(re.findall(r'"(\w+)"', names)) == FIGURES[name].state


def test_what_a_reader_changes_reaches_the_model_and_makes_the_same_picture_again(name, bench):
    before = bench.evaluate("one.model.state")
    assert bench.evaluate("one.model.saved") == 0, "a figure that nobody touched has nothing to tell"
    touch_everything(bench)
    after = bench.evaluate("one.model.state")
    changed = {key for key in before if before[key] != after[key]}
    assert changed and changed <= set(FIGURES[name].state) and bench.evaluate("one.model.saved") > 0
    shown, again = bench.evaluate("""() => [one, open_one(one.model.state)].map(({ host }) => ({ ...host.dataset }))""")
    assert again == shown


def test_what_python_sets_moves_the_figure_and_start_again_goes_back(name, bench):
    first = bench.evaluate("({ ...one.host.dataset })")
    touch_everything(bench)
    bench.evaluate("state => { window.two = open_one(state); }", FIGURES[name].model)
    assert bench.evaluate("({ ...two.host.dataset })") == first
    bench.evaluate("keys => keys.forEach((key) => two.model.set(key, structuredClone(one.model.get(key))))",
                   FIGURES[name].state)
    assert bench.evaluate("({ ...two.host.dataset })") == bench.evaluate("({ ...one.host.dataset })") != first
    again = bench.locator(".caracal-figure").nth(2).get_by_role("button", name="Start again")
    if again.count():
        again.click()
        assert bench.evaluate("({ ...two.host.dataset })") == first


@pytest.mark.parametrize("figure, given, kept", [
    ("clock", {"n": 99}, {"n": 8}), ("clock", {"v": [9, 0, 0, 0]}, {"v": [2, 0, 0, 0]}),
    ("schedule", {"n": -3}, {"n": 1}),
    ("roots", {"n": 5.4}, {"n": 5}), ("sight", {"pattern": "FF"}, None),
    ("meeting", {"t": 99}, {"t": 9}), ("meeting", {"text": "ab"}, None), ("meeting", {"text": "ABCDEEDCBA"}, None),
    ("weighted_sum", {"mixer": "sum"}, None),
    ("live", {"values": [7, 0]}, {"values": [3, 0]}),
])
def test_a_value_that_cannot_be_shown_comes_back_as_one_that_can(figure, given, kept, browser, tmp_path):
    context = browser.new_context()
    page = context.new_page()
    page.goto(write_page(tmp_path, PAGE.format(css=_css(), source=FIGURES[figure]._source)))
    page.wait_for_function("window.ready")
    page.evaluate("state => { window.one = open_one(state); }", FIGURES[figure].model)
    for key, value in given.items():
        page.evaluate("([key, value]) => one.model.set(key, value)", [key, value])
        assert page.evaluate("key => one.model.get(key)", key) == (kept or FIGURES[figure].model)[key]
    context.close()


def test_every_module_is_tried():
    assert set(FIGURES) == {path.name.removesuffix(".js") for path in viz_modules()} - {"drawing"}


def viz_modules():
    from importlib import resources

    return [path for path in resources.files("caracal_book.viz").iterdir() if path.name.endswith(".js")]


@pytest.mark.parametrize("kind, dark", [("vscode-dark", True), ("vscode-high-contrast", True), ("vscode-light", False),
                                        ("vscode-high-contrast vscode-high-contrast-light", False)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_of_vs_code_is_followed(kind, dark, scheme, browser, tmp_path):
    check_theme(browser, tmp_path, f'class="{kind}" data-vscode-theme-kind="{kind}"', scheme, dark)


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_of_jupyterlab_is_followed(light, scheme, browser, tmp_path):
    check_theme(browser, tmp_path, f'data-jp-theme-light="{str(light).lower()}"', scheme, not light)


def check_theme(browser, folder, attributes, scheme, dark):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    address = write_page(folder, FIGURES["schedule"].to_html())
    path = folder / "figure.html"
    path.write_text(path.read_text().replace("<body>", f"<body {attributes}>"))
    page.goto(address)
    page.wait_for_selector(".caracal-figure[data-ready]")
    look = "live => ['backgroundColor', 'color'].map((c) => getComputedStyle(live)[c])"
    colours = page.eval_on_selector(".caracal-live", look)
    context.close()
    expected = (viz.style.dark if dark else viz.palette)
    rgb = ["rgb({}, {}, {})".format(*bytes.fromhex(colour[1:])) for colour in (expected.paper, expected.ink)]
    assert colours == rgb
