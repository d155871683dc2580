"""A small corpus and a small run, for the tests of this folder."""

import numpy as np

from caracal_min.data import ByteTokenizer, Corpus
from caracal_min.training import TrainConfig


def corpus(seed=0, length=6000):
    """A text with structure to learn: words drawn from a few, as bytes."""
    draw = np.random.default_rng(seed)
    words = [b"causal ", b"fourier ", b"window ", b"gate ", b"token "]
    text = b"".join(words[i] for i in draw.integers(0, 5, length // 6))
    ids = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)
    return Corpus("test", "byte", ids[:-800], ids[-800:])


def config(out=None, steps=12, **changes):
    """The recipe of nano, in a few steps on 4 x 32 tokens."""
    defaults = dict(out=out, tokens=steps * 4 * 32, context=32, batch_size=4, micro_batch_size=4,
                    eval_every=5, eval_windows=8, progress=False, device="cpu")
    return TrainConfig.for_preset(changes.pop("preset", "nano"), **{**defaults, **changes})


def losses(log):
    return [entry["loss"] for entry in log]


def same_numbers(log):
    """The entries without what a clock decides."""
    clocks = ("seconds", "tokens_per_second", "mfu")
    return [{name: value for name, value in entry.items() if name not in clocks} for entry in log]


class Words(ByteTokenizer):
    """A tokenizer of as many ids that means other text."""

    name = "words"

    def to_json(self):
        return super().to_json().replace('"a"', '"aa"')
