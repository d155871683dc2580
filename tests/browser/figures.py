"""One small figure of each kind, made when it is asked for: what the tests of all figures open."""

from functools import cache
from pathlib import Path

import torch
from engine_pages import small_model

from caracal_book import viz
from caracal_min.layers import MultiHeadFourier

NAMES = sorted({path.stem for path in Path(viz.__file__).parent.glob("*.js")} - {"drawing"})
V = torch.tensor([1.0, 0.5, 1.5, 0.8])
WORDS = "the cat sat on".split()
LOG = [{"step": step, "loss": 3.0 - 0.01 * step, "validation_loss": 3.1 - 0.01 * step} for step in range(1, 41)]
SAMPLES = [{"step": step, "text": f"text {step}"} for step in (0, 20, 40)]


@cache
def model():
    return small_model(n_layers=3)


def fourier_shapes():
    torch.manual_seed(0)
    return viz.fourier_shapes(MultiHeadFourier(4, 2), torch.randn(4, 4), WORDS)


MADE = {
    "antidiagonals": lambda: viz.antidiagonals(torch.tensor([1, 2, 0]), torch.tensor([3, 1, 2])),
    "change": lambda: viz.change_gates(model(), "The cat and", "An ocean in it", name="nimble"),
    "clock": lambda: viz.clock(V, V.flip(0), n=5),
    "continuation": lambda: viz.continuation(model(), "The cat", name="nimble", words=4),
    "fourier_shapes": fourier_shapes,
    "live": lambda: viz.live(lambda n, word: word * n, "a word, repeated", n=range(1, 5), word=["a", "b"]),
    "matrices": lambda: viz.matrices(model(), "The cat and the", "An ocean", name="nimble"),
    "meeting": lambda: viz.meeting("abcdeedcba", t=5),
    "parameter_budget": viz.parameter_budget,
    "poke": lambda: viz.poke(V, V.flip(0)),
    "remember": lambda: viz.remember(model(), "The cat and", 8, 12, name="nimble"),
    "roots": lambda: viz.roots(8, [1.0, 2.0, 0.5]),
    "schedule": lambda: viz.schedule(16, 5),
    "sight": lambda: viz.sight("AAAAAA", window=4, length=20),
    "time_budget": viz.time_budget,
    "toeplitz_kernel": lambda: viz.toeplitz_kernel(V, V.flip(0), row=2, column=1),
    "training_run": lambda: viz.training_run(LOG, SAMPLES),
    "why": lambda: viz.why(model(), "The cat and the", name="nimble"),
}


@cache
def figure(name: str) -> viz.Figure:
    return MADE[name]()
