# goes when training and commands no longer import it
"""What is measured, and what a measurement is: `BenchmarkConfig` and `Row`."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..choices import BASELINES, VARIANTS, Compiled, check_kind, require_compiled
from ..config import PRESETS

__all__ = ["GROUPS", "BenchmarkConfig", "Row"]

GROUPS = ("convolution", "layer", "training", "profile", "throughput", "mixer", "generation")
"""Groups of rows, in the order of the table."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure speed and memory as ratios, print a table, and save it as JSON."""

    rows: tuple[str, ...] = GROUPS
    """Groups of rows to measure; training, profile and throughput are left out on a CPU unless named alone."""
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    """Sequence lengths of convolution, layer, training, profile and throughput."""
    contexts: tuple[int, ...] = (1024, 16384)
    """Tokens already written when generation is measured."""
    preset: str = "tiny"
    """Model of training and generation, nano to large; its width and heads are those of the other rows."""
    against: tuple[str, ...] = ("llama",)
    """Rivals of throughput: llama, mamba2, a variant such as no-swa; mamba and jamba where mamba_ssm is installed."""
    tokens: int = 8192
    """Tokens per batch in all groups with lengths: tokens / length sequences, at least 1."""
    compile: Compiled = "blocks"
    """For what torch.compile builds kernels in training, profile and throughput: no, each kind of block (blocks), or
    the whole model (model)."""
    repeats: int = 7
    """Measurements of each side, of which the median counts."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet; left out: none."""

    def __post_init__(self):
        if set(self.rows) - set(GROUPS) or not self.rows:
            raise ValueError(f"rows={' '.join(self.rows) or 'none'}; accepted: {', '.join(GROUPS)}")
        require_compiled(self.compile)
        check_kind("caracal", self.preset, "default")
        for name, least in (("lengths", 1), ("contexts", 8)):
            if not getattr(self, name) or min(getattr(self, name)) < least:
                raise ValueError(f"{name}={getattr(self, name)}; give whole numbers >= {least}")
        unknown = set(self.against) - {*BASELINES, *VARIANTS}
        if unknown or not self.against:
            raise ValueError(f"against={' '.join(self.against) or 'none'}; accepted: "
                             f"{', '.join((*BASELINES, *VARIANTS))}")
        slow = [name for name in self.against if name in ("mamba", "jamba")]
        if slow and find_spec("mamba_ssm") is None:
            raise ValueError(f"against={slow[0]}: without the kernels of mamba_ssm it scans token by token, which says "
                             "nothing about its speed; install mamba-ssm, or leave it out")
        if self.tokens < 1 or self.repeats < 1:
            raise ValueError(f"tokens={self.tokens}, repeats={self.repeats}; give whole numbers >= 1")

    @property
    def width(self) -> tuple[int, int]:
        """Width and heads of the preset."""
        return PRESETS[self.preset].d_model, PRESETS[self.preset].n_heads

    @property
    def vocabulary(self) -> int:
        """Number of token ids of the preset."""
        return PRESETS[self.preset].vocab_size

    def batch(self, length: int) -> int:
        """Sequences of this length in a batch."""
        return max(1, self.tokens // length)


@dataclass(frozen=True)
class Row:
    """One ratio: how many times less time (or memory) ours needs than the reference."""

    what: str
    size: int
    against: str
    unit: str
    ours: float
    reference: float
    target: float | None
    """What the ratio should reach; None: for information."""

    @property
    def ratio(self) -> float:
        """Reference over ours: above 1, ours needs less."""
        return self.reference / self.ours
