"""A real JupyterLab in Chromium: run all, drag, press keys, edit a function, and read the change on the Python side."""

import importlib.util
from contextlib import suppress

import pytest
from lab_server import PATIENCE, LabServer, value_of, wait
from playwright.sync_api import TimeoutError

pytestmark = pytest.mark.browser

CELLS = (
    "import torch\nfrom caracal_book import viz\nv, g = torch.tensor([1.0, 0.6, 1.4]), torch.tensor([1.2, 0.8, 0.5])",
    "clock = viz.clock(v, g).widget()\nclock",
    "def mine(n):\n    return n + 1",
    "calls = []\ndef answer(n, word='abc'):\n    calls.append((n, word))\n    return f'{word}: {mine(n)}'\n"
    "shown = viz.live(answer, 'a word and a number', n=range(5), word=viz.Texts('abc', 'de'))\nshown",
)
CLOCK, LIVE = 1, 3


@pytest.fixture(scope="module")
def lab(tmp_path_factory, report_missing, root):
    """A running JupyterLab, and its end."""
    if not all(map(importlib.util.find_spec, ("jupyterlab", "anywidget"))):
        report_missing("jupyterlab or anywidget is not installed: pip install -r requirements.txt -c constraints.txt")
    server = LabServer(tmp_path_factory.mktemp("lab"), root)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def notebook(lab, browser):
    """The notebook of CELLS, opened in JupyterLab with every cell run: its page and its kernel."""
    context = browser.new_context(viewport={"width": 1300, "height": 1400}, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.goto(lab.write("figures.ipynb", *CELLS))
    page.locator(".jp-Notebook .jp-CodeCell").nth(LIVE).wait_for(state="attached")
    page.locator(".jp-NotebookPanel-toolbar").wait_for()
    lab.await_kernel()
    run_all(page)
    for number in (CLOCK, LIVE):
        output(page, number).locator(".caracal-live").wait_for()
    client = lab.kernel()
    yield page, client
    client.stop_channels()
    context.close()


def run_all(page):
    """Run all cells; once more if the notebook was not ready yet and ran none."""
    runs = r"() => /\[[*\d]+\]/.test(document.querySelector('.jp-CodeCell .jp-InputPrompt').textContent)"
    for _ in range(4):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.locator("[data-command='runmenu:run-all']").click()
        with suppress(TimeoutError):
            page.wait_for_function(runs, timeout=1000 * PATIENCE / 4)
            return
    pytest.fail(f"the notebook does not run: {page.locator('.jp-Notebook').inner_text()}")


def cell(page, number):
    """A cell, moved into the window."""
    found = page.locator(".jp-CodeCell").nth(number)
    found.scroll_into_view_if_needed()
    return found


def output(page, number):
    return cell(page, number).locator(".jp-OutputArea")


def test_a_figure_and_its_trait_move_each_other_and_keys_stay_with_the_figure(notebook):
    page, client = notebook
    figure, active = output(page, CLOCK), "c => c.classList.contains('jp-mod-active')"
    slider = figure.locator("input[type=range]")
    slider.click(position={"x": 12, "y": 14})
    for key, value in {"Home": 3, "ArrowUp": 4, "ArrowLeft": 3, "End": 6, "ArrowDown": 5}.items():
        page.keyboard.press(key)
        assert slider.input_value() == str(value) and cell(page, CLOCK).evaluate(active), key
    wait(lambda: value_of(client, "clock.n") == 5)
    value_of(client, "(setattr(clock, 'n', 4), setattr(clock, 'unit', 'i'), setattr(clock, 'g', [0.0, 2.0, 0.0]))")
    figure.locator(".caracal-live[data-n='4'][data-unit='\"i\"'][data-g='[0,2,0]']").wait_for()
    assert slider.input_value() == "4"


def test_a_readers_own_function_answers_at_once_and_letters_are_no_shortcuts(notebook):
    page, client = notebook
    live = output(page, LIVE).locator(".caracal-live")
    value_of(client, "exec('def mine(n): return -10 * n', globals())")      # the reader runs another definition
    live.locator("input[type=range]").press("ArrowRight")
    live.get_by_text("abc: -10", exact=True).wait_for()
    assert value_of(client, "calls[-1]") == [1, "abc"]
    cells, box = page.locator(".jp-CodeCell").count(), live.locator("input[type=text]")
    box.click()
    box.press("Control+a")
    box.press_sequentially("abdd")              # a and b insert cells, d d deletes one
    assert page.locator(".jp-CodeCell").count() == cells
    box.press("Enter")
    live.get_by_text("abdd: -10", exact=True).wait_for()
