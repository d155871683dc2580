"""The figure of a training run in a real browser, from a file: slider, texts, quoted losses, hostile texts."""

import math
import random
import re

import pytest
from figure_pages import data, page_width

from caracal_book import viz

pytestmark = pytest.mark.browser

DRAW = random.Random(4)
LOG = [{"step": step, "loss": 1.9 + 3.6 * math.exp(-step / 120) + DRAW.gauss(0, 0.05)} for step in range(1, 801)]
for entry in LOG[49::50]:
    entry["validation_loss"] = 2.0 + 3.6 * math.exp(-entry["step"] / 120)
BASELINES = {"a uniform guess": math.log(256), "a bigram model": 2.71}
PROMPT = "The king </script>"
TEXTS = {0: "q]W\x00\x1b[31m</script><script>document.title = 'broken'</script><img src='http://192.0.2.1/x.png'>\u202e",
         30: "", 100: "e ta oen " * 400, 233: "W" * 4000, 400: "line\n" * 500,
         600: "\"it's\" &amp; <b>$x^2$</b> \\(y\\) é 王 🐈", 800: " said:\n  Come, and see the sea."}
STEPS = list(TEXTS)


def make(texts=None):
    samples = [{"step": step, "text": text} for step, text in (texts or TEXTS).items()]
    return viz.training_run(LOG, samples, BASELINES, prompt=PROMPT)


FIGURE = make()


def written(page):
    """The text that the model wrote, as the page shows it, without the prompt."""
    return page.locator(".run-written").evaluate("node => node.textContent")


def announced(page):
    return page.locator(".run-said[aria-live]").inner_text()


def measured_by(step):
    """The validation entry of the log at a step or last before it."""
    found = [entry for entry in LOG if "validation_loss" in entry and entry["step"] <= step]
    return found[-1] if found else None


def test_keys_step_through_texts_and_the_announced_loss_is_the_logs(page):
    slider = page.get_by_role("slider")
    slider.focus()
    for key, place in [("End", 6), ("ArrowLeft", 5), ("ArrowDown", 4), ("Home", 0), ("ArrowLeft", 0),
                       ("ArrowRight", 1), ("ArrowUp", 2), ("ArrowRight", 3), ("ArrowRight", 4)]:
        page.keyboard.press(key)
        step, entry = STEPS[place], measured_by(STEPS[place])
        assert data(page)["step"] == step
        assert slider.get_attribute("aria-valuetext") == (f"step {step}" if step else "before training")
        if TEXTS[step]:
            assert written(page) == make().model["samples"][place]["text"]
        else:
            assert page.locator(".run-text").inner_text().endswith("(nothing)")
        if entry:
            assert data(page)["validation"] == entry["validation_loss"]
            late = "" if entry["step"] == step else f" (measured at step {entry['step']})"
            side = "below a bigram model" if entry["validation_loss"] < 2.705 else "above a bigram model"
            assert announced(page).startswith(
                f"step {step}: validation loss {entry['validation_loss']:.2f} nats per token{late}; ")
            assert side in announced(page)
        else:
            assert "validation" not in data(page) and not re.search(r"validation loss \d", announced(page))
            assert step < 50 and "training loss" in announced(page)


def test_hostile_texts_are_shown_and_break_nothing(page):
    assert page.title() == "a figure" and page.locator(".run-text img, .run-text script").count() == 0
    assert "</script><script>document.title = 'broken'" in written(page) and "\u202e" not in written(page)
    assert "␀␛[31m" in written(page)
    for k in range(len(STEPS)):
        page.get_by_role("slider").fill(str(k))
        assert page_width(page) <= 360
        assert page.eval_on_selector(".run-text", "node => node.scrollWidth <= node.clientWidth")
    page.keyboard.press("ArrowLeft")
    assert written(page) == TEXTS[600]  # no markup, no entities, no mathematics read into it
