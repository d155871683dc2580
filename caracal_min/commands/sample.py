"""The command `sample`: a trained model continues a prompt."""

from dataclasses import dataclass

import torch

from ..data.tokenizers import tokenizer_for
from ..model import Caracal
from ..precision import Precision, resolve_precision
from ..training.settings import require_kinds, require_range, require_text

__all__ = ["SampleConfig", "run_sample"]


@dataclass(frozen=True)
class SampleConfig:
    """Continue a prompt with a trained model and print the text as it is drawn."""

    model: str
    """Folder that `train` wrote (its `model` subfolder), or "owner/name" on the hub."""
    prompt: str = "The "
    """Text to continue; must not be empty."""
    max_new_tokens: int = 200
    """Most tokens to draw."""
    temperature: float = 0.8
    """0 takes the most likely token each time."""
    top_k: int | None = None
    """Draw among this many most likely tokens."""
    top_p: float | None = None
    """Draw among the fewest tokens that hold this probability."""
    seed: int | None = None
    """Makes the draws reproducible."""
    precision: Precision = "auto"
    """Of the weights: auto (the fastest that the device has units for), bfloat16, float16 or float32."""

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model", "prompt"))
        require_range(self, ("max_new_tokens", "seed"), low=0)
        if self.temperature != 0:  # smaller ones overflow as divisors of logits, which are of type float32
            require_range(self, ("temperature",), low=1e-6)
        require_range(self, ("top_k",), low=1)
        require_range(self, ("top_p",), low=1e-6, high=1)


def run_sample(config: SampleConfig) -> None:
    """Print the prompt and its continuation."""
    model = Caracal.from_pretrained(config.model)
    model = model.to(resolve_precision(config.precision, model.embedding.weight.device))
    tokenizer = tokenizer_for(model.config.vocab_size)
    ids = tokenizer.encode(config.prompt)
    print(config.prompt, end="", flush=True)
    drawn, shown = [], 0
    for token in model.stream(torch.tensor([ids]), config.max_new_tokens, temperature=config.temperature,
                              top_k=config.top_k, top_p=config.top_p, seed=config.seed,
                              stop=tokenizer.end_of_text):
        drawn.append(token.item())
        text = tokenizer.decode(drawn).removesuffix("\N{REPLACEMENT CHARACTER}")  # half a character: wait
        print(text[shown:], end="", flush=True)
        shown = max(shown, len(text))
    print()
