"""The engine in a real browser against the package, on the same weights: every tensor, texts, schedule, words."""

import numpy as np
import pytest
import torch
from engine_pages import open_engine, rounded, small_model, tensors_of_package, tensors_of_page

from caracal_book.viz.engine import source
from caracal_book.web_export import web_scripts
from caracal_min import Caracal
from caracal_min.generation import filter_logits
from caracal_min.model import shipped_models

pytestmark = pytest.mark.browser

PROMPTS = ["The sentence that another and then another reads.",
           "In the beginning there was an ocean, and on it, at rest, a boat of tin.",
           "Then they said that nothing", "A list of things:"]
TEXTS = [*PROMPTS, "It's  45.7\u00b0 \u2014 na\u00efve\u0085caf\u00e9s\ufeff, they'll say\u3000\u2026\n\n\n",
         "  \U0001f642!?", "\x1c\x1d tabs\t\tand\r\nlines \u00bd \u0663 '", "", " ", "<|endoftext|>"]
STEPS = 200

_GREEDY = """([ids, steps]) => {
  const text = model.start();
  run(model.read(text, ids));
  for (let k = 0; k < steps; k++) run(model.read(text, [...text.seen, draw(text.last, { temperature: 0 })]));
  return text.seen;
}"""
# How far logits are from those of a text in one piece: token by token; in two pieces, and then token by token; of a
# text that was another one before.
_WAYS = """ids => {
  const whole = run(model.logits(run(model.read(model.start(), ids)))), size = whole.length / ids.length;
  const far = (last, t) => last.reduce((most, x, k) => Math.max(most, Math.abs(x - whole[t * size + k])), 0);
  const steps = model.start(), pieces = model.start(), changed = model.start(), off = { steps: 0 };
  for (let t = 0; t < ids.length; t++) {
    run(model.append(steps, [ids[t]]));
    off.steps = Math.max(off.steps, far(steps.last, t));
  }
  run(model.read(pieces, ids.slice(0, 41)));
  run(model.read(pieces, ids.slice(0, 100)));
  for (let t = 100; t < ids.length; t++) run(model.read(pieces, ids.slice(0, t + 1)));
  off.pieces = far(pieces.last, ids.length - 1);
  run(model.read(changed, [...ids.slice(0, 70), ...ids.slice(0, 50)]));
  const given = model.read(changed, [...ids.slice(0, 40), 1, 2]);       // and given up while it runs
  for (let k = 0; k < 9; k++) given.next();
  run(model.read(changed, ids.slice(0, 72)));
  for (let t = 72; t < ids.length; t++) run(model.read(changed, ids.slice(0, t + 1)));
  off.changed = far(changed.last, ids.length - 1);
  return off;
}"""


def many_ids(model) -> list[int]:
    """A text beyond the window and four blocks of 32 tokens."""
    return (model.tokenizer.encode(" ".join(PROMPTS)) * 9)[:140]


def differences(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> list[str]:
    """Names of what is missing, foreign, or further off than 1e-4 of its root mean square."""
    wrong = sorted(found.keys() ^ expected.keys())
    for name in found.keys() & expected.keys():
        scale = float(np.sqrt(np.mean(expected[name] ** 2)))
        if found[name].shape != expected[name].shape or np.abs(found[name] - expected[name]).max() > 1e-4 * scale:
            wrong.append(name)
    return wrong


@pytest.fixture(scope="module", params=["small", *shipped_models()])
def model(request):
    return small_model() if request.param == "small" else rounded(Caracal.from_pretrained(request.param, device="cpu"))


@pytest.fixture
def engine(browser):
    """A function that opens a page with a model."""
    pages = []

    def start(model, program=None, **scripts):
        pages.append(browser.new_page())
        return open_engine(pages[-1], web_scripts(model)[1] | scripts, program)

    yield start
    for page in pages:
        page.close()


def test_every_tensor_of_every_layer_is_that_of_the_package(model, engine):
    page = engine(model)
    for ids in (model.tokenizer.encode(PROMPTS[0]), many_ids(model)):
        expected = tensors_of_package(model, ids)
        layers = {name.split(".")[1] for name in expected if name.startswith("blocks")}
        assert len(layers) == model.config.n_layers and len(expected) > 10 * len(layers)
        assert min(np.abs(values).max() for values in expected.values()) > 0
        assert differences(tensors_of_page(page, ids), expected) == []


@pytest.mark.parametrize("changes", [dict(pre_conv=False, gate="single_stage"), dict(gate_length=20),
                                     dict(positional_encoding="learned", fourier_per_attention=None)])
def test_other_configurations_agree(changes, engine):
    model = small_model(n_layers=3, **changes)
    page, ids = engine(model), many_ids(model)
    assert differences(tensors_of_page(page, ids), tensors_of_package(model, ids)) == []
    assert max(page.evaluate(_WAYS, ids).values()) < 2e-4


def test_200_greedy_tokens_are_those_of_the_package(model, engine):
    """Of a text in which the likeliest token is likelier than the next one by more than rounding."""
    for prompt in PROMPTS:
        ids = model.tokenizer.encode(prompt)
        expected = model.generate(torch.tensor([ids]), STEPS, temperature=0.0)
        best = model.logits(expected)[0, len(ids) - 1:-1].topk(2).values
        if (best[:, 0] - best[:, 1]).min() > 1e-3:
            break
    else:
        pytest.fail("in every text two tokens are equally likely")
    assert engine(model).evaluate(_GREEDY, [ids, STEPS]) == expected[0].tolist()


def test_a_token_at_a_time_gives_what_the_whole_text_gives(model, engine):
    off = engine(model).evaluate(_WAYS, many_ids(model))
    assert off.keys() == {"steps", "pieces", "changed"} and max(off.values()) < 2e-4


@pytest.mark.parametrize("options", [{}, {"temperature": 2.0, "topK": 9, "topP": 0.8}, {"temperature": 0.0}])
def test_draws_follow_the_distribution_of_the_package(options, browser):
    logits, draws = torch.randn(40, generator=torch.Generator().manual_seed(1)) * 2, 4000
    page = browser.new_page()
    page.add_script_tag(content=source())
    drawn, best = page.evaluate("""([logits, options, draws]) => {
      const ids = Array.from({ length: draws }, (_, seed) => draw(Float32Array.from(logits), options, seeded(seed)));
      return [ids, likeliest(Float32Array.from(logits), 5, options.temperature).map(({ id, p }) => [id, p])];
    }""", [logits.tolist(), options, draws])
    page.close()
    temperature = options.get("temperature", 1.0)
    heated = logits / (temperature or 1.0)
    expected = filter_logits(heated, options.get("topK"), options.get("topP")).softmax(-1)
    if temperature == 0.0:
        expected = torch.zeros(40).scatter(0, logits.argmax()[None], 1.0)
    found = torch.bincount(torch.tensor(drawn), minlength=40) / draws
    assert not found[expected == 0].any() and (found - expected).abs().max() < 0.03
    top = heated.softmax(-1).topk(5)
    assert [i for i, _ in best] == top.indices.tolist()
    shares = top.values.tolist() if temperature else [1, 0, 0, 0, 0]
    assert [p for _, p in best] == pytest.approx(shares, abs=1e-6)


def words_differ(page, tokenizer, texts) -> list[str]:
    encoded = page.evaluate("texts => texts.map((text) => words.encode(text))", texts)
    decoded = page.evaluate("l => l.map((ids) => [words.decode(ids), ids.map(words.reader()).join('')])", encoded)
    return [text for text, ids, back in zip(texts, encoded, decoded, strict=True)
            if ids != tokenizer.encode(text) or back != [text, text]]


def test_words_are_those_of_the_tokenizer(model, engine):
    page = engine(model)
    assert words_differ(page, model.tokenizer, TEXTS) == []
    tokenizer = model.tokenizer
    half = tokenizer.encode("\U0001f642")[:1]
    assert page.evaluate("ids => words.decode(ids)", half) == tokenizer.decode(half)
    assert page.evaluate("() => words.decode([words.endOfText])") == tokenizer.decode([tokenizer.end_of_text])
