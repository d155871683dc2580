"""The command `sample`: a trained model continues a prompt."""

from dataclasses import dataclass

import torch

from ..data.tokenizers import tokenizer_for
from ..precision import Precision, find_device, resolve_precision
from ..training.settings import require_kinds, require_range, require_text
from .command import load_caracal

__all__ = ["SampleConfig", "run_sample"]


@dataclass(frozen=True)
class SampleConfig:
    """Continue a prompt with a trained model and print the text as it is drawn."""

    model: str
    """Folder of a run or of a model, which train writes, or "owner/name" on the hub; of a run that has not ended, the
    last checkpoint is taken."""
    prompt: str = "The "
    """Text to continue; must not be empty."""
    max_new_tokens: int = 200
    """Most tokens to draw; fewer if the model ends its text."""
    temperature: float = 0.8
    """What the logits are divided by: below 1 the draws are safer, above 1 bolder, and 0 takes the most likely token
    each time."""
    top_k: int | None = None
    """Draw among this many most likely tokens; left out: among all."""
    top_p: float | None = None
    """Draw among the fewest tokens that together have this probability, 0 to 1; left out: among all."""
    seed: int | None = None
    """Makes the draws the same each time; left out: they differ."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens, also of a model trained without, for texts longer than those it was trained
    on: a token then costs the same however many came before; left out: as it was trained."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, ..."""
    precision: Precision = "auto"
    """Of the weights: auto (the fastest that the device has units for), bfloat16, float16 or float32."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model", "prompt"))
        require_range(self, ("max_new_tokens", "seed"), low=0)
        if self.temperature != 0:  # smaller ones overflow as divisors of logits, which are of type float32
            require_range(self, ("temperature",), low=1e-6)
        require_range(self, ("top_k", "gate_length"), low=1)
        require_range(self, ("top_p",), low=1e-6, high=1)


def run_sample(config: SampleConfig) -> None:
    """Print the prompt and its continuation."""
    device = find_device(config.device)
    model = load_caracal(config.model, config.gate_length).to(device, resolve_precision(config.precision, device))
    tokenizer = tokenizer_for(model.config.vocab_size)
    ids = tokenizer.encode(config.prompt)
    print(config.prompt, end="", flush=True)
    drawn, shown = [], 0
    for token in model.stream(torch.tensor([ids], device=device), config.max_new_tokens, temperature=config.temperature,
                              top_k=config.top_k, top_p=config.top_p, seed=config.seed,
                              stop=tokenizer.end_of_text):
        drawn.append(token.item())
        text = tokenizer.decode(drawn).removesuffix("\N{REPLACEMENT CHARACTER}")  # half a character: wait
        print(text[shown:], end="", flush=True)
        shown = max(shown, len(text))
    print()
