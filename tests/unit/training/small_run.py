"""A small corpus and a small run, for the tests of this folder."""

import json

import numpy as np
import torch
from safetensors.torch import save_file

from caracal_min.data import Corpus
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
    defaults = dict(out=out, tokens=steps * 4 * 32, context=32, batch_size=4, micro_batch_size=4, eval_every=5,
                    checkpoint_every=4, eval_windows=8, progress=False, device="cpu")
    return TrainConfig.for_preset(changes.pop("preset", "nano"), **{**defaults, **changes})


def losses(log):
    return [entry["loss"] for entry in log]


def files(folder):
    """The bytes of every file, the lock aside."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name != "lock"}


def save_as_before(trainer, folder, **settings):
    """Write a checkpoint as version 0.1.0 of commit 203bf6b did: one, without hash, log or processes."""
    c = trainer.config
    kept = {name: value for name, value in vars(c).items()
            if name not in {"out", "progress", "device", "compile", "peak_flops", "tensorboard", "micro_batch_size",
                            "timeout"}}
    facts = {"step": trainer.step, "seconds": trainer.seconds, "corpus": trainer.corpus.digest, "scaler": {},
             "settings": {k: v for k, v in (kept | {"precision": "float32"} | settings).items() if v is not ...}}
    tensors = {f"model.{name}": t for name, t in trainer.model.state_dict().items()}
    for i, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": t for name, t in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    save_file({k: t.contiguous() for k, t in tensors.items()}, folder / "checkpoint.safetensors",
              {"format": "caracal-checkpoint-1", "facts": json.dumps(facts, sort_keys=True)})
