"""A page with the engine of `caracal_book.viz.engine` and a model in it, without a worker: what it computes."""

import base64
import json
import re
from itertools import pairwise

import numpy as np
import torch

from caracal_book.viz.engine import source
from caracal_book.web_export import MANIFEST, dequantize_rows, quantize_rows
from caracal_min import Caracal, CaracalConfig
from caracal_min.model import locate_model
from caracal_min.tokenizer import JSONTokenizer

SYLLABLES = ["th", "he", "in", "er", "an", "re", "on", "at", " t", " a", "the", " the", "and", " and", "ing", " in",
             "en", " s", "ti", "or", "es", "ion", "tion", "ed", " c", " w", "is", "it", "al", "ar", " o", " of",
             "st", "nd"]

PAGE_ONLY = {"region", "landmark-one-main", "page-has-heading-one"}  # what axe asks of a page with more than a figure

_TAKE = """async () => {
  if (caracalPart.parts) {
    Object.assign(window, { manifest: caracalPart, tensors: room(caracalPart), index: 0 });
  } else {
    await place(manifest, index++, caracalPart, tensors);
  }
}"""
_START = """() => Object.assign(window, {
  model: new Model(manifest.config, tensors), words: new BytePairs(manifest.tokenizer),
  run: (steps) => { for (;;) { const { done, value } = steps.next(); if (done) return value; } },
  packed: (values) => {
    const bytes = new Uint8Array(Float32Array.from(values).buffer);
    let text = "";
    for (let k = 0; k < bytes.length; k += 8192) text += String.fromCharCode(...bytes.subarray(k, k + 8192));
    return btoa(text);
  },
})"""
_TENSORS = """ids => {
  const found = {}, text = model.start();
  const hidden = run(model.read(text, ids, (name, values) => { found[name] = packed(values); }));
  return { ...found, logits: packed(run(model.logits(hidden))), last: packed(text.last) };
}"""


def tokenizer_of(words: list[str]) -> JSONTokenizer:
    """Return micro's tokenizer with other merges: its 256 bytes, some ASCII words in which Ġ is a space, and an end."""
    stored = json.loads((locate_model("micro") / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [*stored["model"]["vocab"]][:256] + words
    ranks, merges = {word: rank for rank, word in enumerate(tokens)}, []
    for rank, word in enumerate(words, 256):
        pieces = list(word)
        while len(pieces) > 2:  # merge as the encoder does: the earliest token first
            _, i = min((ranks.get(a + b, rank), i) for i, (a, b) in enumerate(pairwise(pieces)))
            pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
        merges.append(pieces)
    end = stored["added_tokens"][0]
    end["id"] = len(tokens)
    ranks[end["content"]] = len(tokens)
    stored["model"] |= {"vocab": ranks, "merges": merges}
    return JSONTokenizer("words", json.dumps(stored))


def small_model(**changes) -> Caracal:
    """Return a model of micro's kind whose weights are as large as trained ones, rounded to eight bits, on words of
    some syllables."""
    words = tokenizer_of([word.replace(" ", "Ġ") for word in SYLLABLES])
    config = {"vocab_size": words.vocab_size, "d_model": 64, "n_layers": 6, "n_heads": 4, "window_size": 24,
              "init_std": 0.12, "embedding_std": 1.0, "max_positions": 512}
    torch.manual_seed(4)
    model = Caracal(CaracalConfig(**{**config, **changes})).eval().requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim == 1:  # biases and norms, which would be 0 and 1
            weight += torch.randn_like(weight) * 0.1
    model.tokenizer = words
    return rounded(model)


def rounded(model: Caracal) -> Caracal:
    """Give a model the weights that a page has of it."""
    model.load_state_dict(dequantize_rows(quantize_rows(model.state_dict())))
    return model


def open_engine(page, scripts: dict[str, str], program: str | None = None):
    """Load the engine, or another program in its place, and a model into an empty page, and return it."""
    page.add_script_tag(content=program or source())
    # The manifest says what the parts hold, so it comes first.
    for _, text in sorted(scripts.items(), key=lambda script: script[0] != MANIFEST):
        page.add_script_tag(content=text)
        page.evaluate(_TAKE)
    page.evaluate(_START)
    return page


def tensors_of_page(page, ids: list[int]) -> dict[str, np.ndarray]:
    """Return every intermediate result of a text in a page, flat, by name."""
    return {name: np.frombuffer(base64.b64decode(text), np.float32)
            for name, text in page.evaluate(_TENSORS, ids).items()}


def tensors_of_package(model: Caracal, ids: list[int]) -> dict[str, np.ndarray]:
    """Return the same by the package: what its layers return, and what some of them are given."""
    found: dict[str, torch.Tensor] = {}

    def returned(name):
        def hook(layer, inputs, output):
            found.setdefault(name, output)  # the embedding is called again, for the logits
        return hook

    def given(name):
        def hook(layer, inputs):
            found[name] = inputs[0]
        return hook

    hooks = []
    for name, layer in model.named_modules():
        if name and not name.endswith("blocks"):
            hooks.append(layer.register_forward_hook(returned(name)))
        if name.endswith("mixer.to_out"):
            hooks.append(layer.register_forward_pre_hook(given(name.replace("to_out", "mixed"))))
        elif name.endswith("mlp_norm"):
            hooks.append(layer.register_forward_pre_hook(given(name.replace("mlp_norm", "mixed"))))
    logits = model.logits(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    for i, block in enumerate(model.blocks):
        name = f"blocks.{i}.mixer"
        if i in model.config.attention_layers:
            found[f"{name}.weights"] = _attention(found[f"{name}.to_qkv"][0], block.mixer)
        for part in ("pre_conv", "gate_mix"):
            if f"{name}.{part}" in found:
                found[f"{name}.{part}"] = found[f"{name}.{part}"].mT
        del found[f"{name}.to_out"], found[f"blocks.{i}.mlp.to_out"]  # the same as the mixer's and the MLP's
    found |= {"logits": logits, "last": logits[0, -1]}
    return {name: values.detach().flatten().numpy() for name, values in found.items()}


def _attention(stacked: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
    """Return the weights `[L, H, window]` by lag, of q, k and v `[L, 3 D]`."""
    length, heads, window = len(stacked), layer.n_heads, layer.window_size
    q, k, _ = stacked.view(length, 3, heads, -1).unbind(1)
    scores = torch.einsum("thc,jhc->thj", q, k) / q.shape[-1] ** 0.5
    lag = torch.arange(length)[:, None] - torch.arange(length)
    weights = scores.masked_fill(((lag < 0) | (lag >= window))[:, None], -torch.inf).softmax(-1)
    by_lag = torch.zeros(length, heads, window)
    for t in range(length):
        for j in range(max(0, t - window + 1), t + 1):
            by_lag[t, :, t - j] = weights[t, :, j]
    return by_lag


def go_live(page) -> None:
    """Press the button that loads a figure's model, and wait until it is there."""
    page.get_by_role("button", name=re.compile(r"Load \w+ \(")).click()
    wait(page, "live")


def wait(page, mode: str) -> None:
    page.wait_for_function("mode => document.querySelector('.caracal-figure').dataset.mode === mode", arg=mode)
