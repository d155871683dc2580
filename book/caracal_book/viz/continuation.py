"""The figure of the landing page: a sentence, and a model that goes on with it, on the page or as it was recorded."""

from collections.abc import Mapping
from typing import Any

import torch

from caracal_min import Caracal

from ..web_export import web_scripts
from .figure import Figure
from .trace import LIKELIEST, in_the_page, percent, pieces_of, shown

__all__ = ["continuation"]


def continuation(model: Caracal, text: str, name: str = "micro", words: int = 24, temperature: float = 0.8,
                 seed: int = 1, folder: str = "_static/micro") -> Figure:
    """Show a sentence and the tokens that a model finds likeliest after it, and let it write.

    The figure holds a recording of what the model wrote.  A button loads its weights, from scripts that `engine.write`
    has put into `folder`; then it reads what the reader types and goes on with it, on the reader's own computer.

    Args:
        model: with a tokenizer of the kind "gpt2:N"; a page has its weights in eight bits, and so has the recording.
        text: the sentence.
        name: what the model is called.
        words: tokens of the recording, 1 or more.
        temperature, seed: of the recording, as `caracal_min.generation.Sampling` takes them.
        folder: where the scripts are, from where the book's pages begin.

    Raises:
        ValueError: no text, fewer than one word, no such tokenizer, or an option out of range.
    """
    if not text or words < 1:
        raise ValueError(f"text={text!r}, words={words}; give a text, and at least one word to record")
    rounded = in_the_page(model)
    manifest, _ = web_scripts(model)
    tokenizer = model.require_tokenizer()
    own = tokenizer.encode(text)
    ids = rounded.generate([own], words, temperature=temperature, seed=seed, stop=tokenizer.end_of_text)[0].tolist()
    drawn = [i for i in ids[len(own):] if i != tokenizer.end_of_text]
    logits = rounded.logits(torch.tensor([[*own, *drawn]]))[0, len(own) - 1:].float()
    likeliest = (logits / (temperature or 1.0)).softmax(-1).topk(LIKELIEST)
    shares = likeliest.values if temperature else torch.eye(LIKELIEST)[0].expand_as(likeliest.values)
    steps = [{"piece": piece, "next": [{"piece": tokenizer.decode([i]), "p": round(p, 4)}
                                       for i, p in zip(*row, strict=True)]}
             for piece, *row in zip(["", *pieces_of(tokenizer, drawn)], likeliest.indices.tolist(), shares.tolist(),
                                    strict=True)]
    data = {"name": name, "text": text, "pieces": pieces_of(tokenizer, own), "steps": steps, "n": 0,
            "temperature": temperature, "folder": folder, "bytes": manifest["bytes"], "digest": manifest["digest"]}
    return Figure("continuation", data, None, _alt(data), state=("n",), parts=("engine/loader", "engine/words"),
                  computed=("steps",))


def _written(data: Mapping[str, Any]) -> str:
    return "".join(step["piece"] for step in data["steps"])


def _alt(data: Mapping[str, Any]) -> str:
    words = ", ".join(f"“{shown(one['piece'])}” {percent(one['p'])}" for one in data["steps"][0]["next"])
    return (f"The sentence “{data['text']}” and the five tokens that {data['name']} finds likeliest after it: {words}. "
            f"Recorded at temperature {data['temperature']:g}, it goes on: “{_written(data)}”. A button loads the "
            f"model's weights, {data['bytes'] / 1e6:.1f} MB, and then it goes on with a sentence of the reader's own.")
