"""What the engine costs for a model of micro's size: processor time, which other programs do not lengthen.

A slow laptop's core is taken to need four times as long as the core of the machine that runs the tests.
"""

import itertools
import string

import pytest
import torch
from engine_pages import open_engine, tokenizer_of

from caracal_book.web_export import web_scripts
from caracal_min import Caracal

pytestmark = pytest.mark.browser

SLOWER = 4            # a slow laptop
PROMPT, TOKENS = 24, 40

_RUN = """([ids, steps]) => {
  const text = model.start();
  run(model.read(text, ids));
  for (let k = 0; k < steps; k++) run(model.read(text, [...text.seen, draw(text.last, { temperature: 1 }, seeded(k))]));
}"""


@pytest.fixture(scope="module")
def scripts():
    pairs = itertools.islice(itertools.product(string.ascii_letters + string.digits, repeat=2), 4096 - 257)
    torch.manual_seed(0)
    model = Caracal.from_preset("micro")
    model.tokenizer = tokenizer_of(["".join(pair) for pair in pairs])
    return web_scripts(model)[1]


@pytest.fixture
def timed(browser):
    """A page, and a function that returns the seconds of the page's thread that something takes."""
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def seconds(what):
        before = spent()
        what()
        return spent() - before

    yield page, seconds
    page.close()


@pytest.mark.slow
def test_a_slow_laptop_writes_twenty_tokens_a_second(scripts, timed):
    page, seconds = timed
    open_engine(page, scripts)
    ids = [*range(PROMPT)]
    page.evaluate(_RUN, [ids, 10])  # the first ones are compiled
    prompt = seconds(lambda: page.evaluate(_RUN, [ids, 0]))
    token = (seconds(lambda: page.evaluate(_RUN, [ids, TOKENS])) - prompt) / TOKENS
    print(f"{1000 * token:.1f} ms a token, {1000 * prompt:.0f} ms for the first one after {PROMPT}")
    assert 20 * SLOWER * token < 2 and SLOWER * prompt < 2
