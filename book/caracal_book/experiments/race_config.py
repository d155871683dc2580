"""What a race is: `RaceConfig`.

Text is read as bytes unless told otherwise.  A model that trains in minutes is narrow, and over the 50,257 tokens of
GPT-2 most of its parameters and most of its time would be those of its output matrix, which all contenders share.

How long it takes, with the defaults, on two cores with bfloat16 units.  A step of 16 x 512 bytes took so many seconds
of processor time, of both cores together, on a machine that had much other work::

    caracal 1.34   no-swa 1.29   no-swa-no-pc 1.21   window 1.39   llama 1.79   static 1.05   hyena 1.27
    gated-deltanet 5.3   mamba2 5.8   mamba: two sequences alone had not ended after 50

With both cores free that is half as long by the clock, so the 732 steps of a run of Caracal are eight minutes.  Two
such runs and three of a quarter's length each are two and a half hours for the first seven contenders, and as much
again for the last two.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from caracal_min.config import CaracalConfig
from caracal_min.data.tokenizers import ByteTokenizer, GPT2Tokenizer
from caracal_min.precision import Precision
from caracal_min.training.recipe import TrainConfig
from caracal_min.training.settings import require_kinds, require_range, require_text

from .race_contenders import CONTENDERS, require_contenders

__all__ = ["RaceConfig"]

_VOCABULARY = {kind.name: kind.vocab_size for kind in (ByteTokenizer, GPT2Tokenizer)}
_FREE = {"out", "contenders", "learning_rates", "seeds", "slowest", "device", "progress"}


@dataclass(frozen=True)
class RaceConfig:
    """Train models that mix tokens in different ways on the same text, and compare their held-out losses.

    Raises:
        ValueError: a field out of range, in one line.
    """

    data: str = "embedded"
    """Text, as in train: embedded, fineweb, a file, a folder of files, or one that tokenize wrote."""
    validation: str | None = None
    """Another source to measure on, all of it; left out: what is held out of data, one document in 20."""
    tokenizer: str = "byte"
    """byte or gpt2."""
    out: Path = Path("runs/race")
    """Folder of the race: its runs, and record.json at the end."""
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    """Who takes part."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 9e-3)
    """Peaks of the schedule that are tried with the first seed."""
    seeds: tuple[int, ...] = (0, 1)
    """Of weights and order of the data; the best rate runs with all of them."""
    tokens: int = 6_000_000
    """Tokens that each run trains on."""
    sweep_part: float = 0.25
    """Part of the tokens that a run of the sweep has, which decides the rate alone; 1: it is the first seed's run."""
    width: int = 192
    """Width of Caracal and of all who have an MLP."""
    layers: int = 6
    """Layers of each; Mamba and Mamba-2 have two blocks for each."""
    heads: int = 4
    """Heads of each."""
    context: int = 512
    """Tokens per sequence."""
    window: int = 256
    """Keys that a layer of window attention sees: of the context, the paper's part."""
    batch_size: int = 16
    """Sequences per step."""
    measurements: int = 20
    """How often a run measures its held-out loss."""
    eval_windows: int = 128
    """Windows per measurement, the same for all."""
    checkpoint_minutes: float = 5.0
    """Steps between checkpoints."""
    slowest: float = 6.0
    """Contenders whose step takes longer than this many steps of Caracal are left out, with the time."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "auto"
    """Of the matrix products: auto (the fastest that the device has units for), bfloat16, float16 or float32."""
    progress: bool = True
    """Show a progress bar for each run."""

    def __post_init__(self):
        require_kinds(self)
        require_contenders(self.contenders)
        require_text(self, ("data", "validation"))
        if self.tokenizer not in _VOCABULARY:
            raise ValueError(f"tokenizer={self.tokenizer!r}; accepted: {', '.join(_VOCABULARY)}")
        for name in ("learning_rates", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise ValueError(f"{name}={' '.join(map(str, given)) or 'none'}; give at least one, and each once")
        require_range(self, ("width", "layers", "heads", "context", "window", "batch_size", "measurements",
                             "eval_windows"), low=1)
        require_range(self, ("tokens",), low=self.batch_size * self.context)
        require_range(self, ("sweep_part",), above=0, high=1)
        require_range(self, ("slowest",), above=0)
        _ = self.size, [self.recipe(rate, seed) for rate in self.learning_rates for seed in self.seeds]

    @property
    def size(self) -> CaracalConfig:
        """Caracal in this race; its parameters are the budget of all."""
        return CaracalConfig(_VOCABULARY[self.tokenizer], self.width, self.layers, self.heads, self.window)

    @property
    def shared(self) -> dict:
        """The settings that all runs share: a race goes on only under the same."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _FREE}

    def recipe(self, learning_rate: float, seed: int, out: Path | None = None, sweep: bool = False) -> TrainConfig:
        """Return the settings of a run, whoever runs: the recipe of the paper but for rate, batch and length.

        The schedule of a run of the sweep ends with its fewer tokens.
        """
        steps = max(1, int(self.tokens * (self.sweep_part if sweep else 1)) // (self.batch_size * self.context))
        tokens = steps * self.batch_size * self.context
        return TrainConfig(data=self.data, validation=self.validation, tokenizer=self.tokenizer, tokens=tokens,
                           context=self.context, batch_size=self.batch_size, micro_batch_size=self.batch_size,
                           learning_rate=learning_rate, seed=seed, eval_every=max(1, steps // self.measurements),
                           eval_windows=self.eval_windows, checkpoint_minutes=self.checkpoint_minutes, out=out,
                           device=self.device, precision=self.precision, progress=self.progress)
