"""The command `sample`: a trained model continues a prompt."""

from dataclasses import dataclass

from ..choices import Precision
from ..training.settings import require_kinds, require_range, require_text, require_unicode
from .command import Command, load_caracal

__all__ = ["COMMAND", "SampleConfig"]


@dataclass(frozen=True)
class SampleConfig:
    """Continue a prompt with a trained model and print the text as it is drawn."""

    model: str
    """Name of a model that comes with the package, folder of a run or of a model, which train writes, or "owner/name"
    on the hub; of a run that has not ended, the last checkpoint is taken.  It may stand first, without --model."""
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
    tokenizer: str | None = None
    """byte, gpt2, gpt2:N, or the path of a tokenizer.json; left out: the one that lies beside the model."""
    gate_length: int | None = None
    """Cuts the gate after so many tokens, also of a model trained without, for texts longer than those it was trained
    on: a token then costs the same however many came before; left out: as it was trained."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps, ..."""
    precision: Precision = "auto"
    """Of the weights: auto (the fastest that the device has units for), bfloat16, float16 or float32."""

    def __post_init__(self):
        from ..generation import Sampling

        require_kinds(self)
        require_text(self, ("model", "prompt", "tokenizer"))
        require_unicode(self, ("prompt",))
        require_range(self, ("max_new_tokens", "seed"), low=0)
        require_range(self, ("gate_length",), low=1)
        Sampling(**self.sampling)

    @property
    def sampling(self) -> dict:
        """The options of `generation.Sampling`."""
        return {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "seed")}


def run_sample(config: SampleConfig) -> None:
    """Print the prompt and its continuation."""
    from ..data.tokenizers import make_tokenizer
    from ..precision import find_device, resolve_precision
    from ..text import stream_text

    device = find_device(config.device)
    model = load_caracal(config.model, config.gate_length).model.to(device, resolve_precision(config.precision, device))
    if config.tokenizer is not None:
        model.tokenizer = make_tokenizer(config.tokenizer)
    pieces = stream_text(model, model.require_tokenizer(), config.prompt, config.max_new_tokens, **config.sampling)
    print(config.prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


COMMAND = Command(SampleConfig, run_sample, first="model")
