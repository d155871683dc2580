"""What is measured, and what a measurement is: `BenchmarkConfig` and `Row`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from caracal_min.config import CaracalConfig, find_preset

__all__ = ["BenchmarkConfig", "Compiled", "Group", "Row"]

Group = Literal["convolution", "layer", "profile", "throughput", "trainer", "mixer", "generation"]
"""Groups of rows, in the order of the table."""

Compiled = Literal["no", "blocks", "model"]
"""What torch.compile builds kernels for: nothing, each kind of block, or the whole model."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure speed as ratios, print a table, and save it as JSON."""

    rows: tuple[Group, ...] = get_args(Group)
    """Groups of rows to measure; those of whole steps are left out on a CPU unless one is named alone."""
    lengths: tuple[int, ...] = (512, 2048, 8192)
    """Sequence lengths of all groups but mixer and generation."""
    contexts: tuple[int, ...] = (1024, 16384)
    """Tokens already written when generation is measured, at least 8."""
    preset: str = "tiny"
    """Model of training and generation, nano to large; its width and heads are those of the other rows."""
    against: tuple[str, ...] = ("llama",)
    """Rivals of throughput: llama, mamba2, a variant such as no-swa; mamba and jamba where mamba_ssm is installed."""
    tokens: int = 8192
    """Tokens per batch in all groups with lengths: tokens / length sequences, at least 1."""
    compile: Compiled = "blocks"
    """For what torch.compile builds kernels in whole steps: no, each kind of block (blocks), or the whole model
    (model)."""
    repeats: int = 7
    """Measurements of each side, of which the median counts."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    out: Path | None = None
    """Record to write, a JSON file that is not there yet; left out: none."""

    @property
    def size(self) -> CaracalConfig:
        """The shape of the preset."""
        return find_preset(self.preset)

    def batch(self, length: int) -> int:
        """Sequences of this length in a batch."""
        return max(1, self.tokens // length)


@dataclass(frozen=True)
class Row:
    """One ratio: how many times less time ours needs than the reference."""

    what: str
    size: int
    against: str
    unit: str
    ours: float
    reference: float
    target: float | None = None
    """What the ratio should reach; None: for information."""

    @property
    def ratio(self) -> float:
        """Reference over ours: above 1, ours needs less."""
        return self.reference / self.ours
