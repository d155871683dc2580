# goes when training and commands no longer import it
"""How fast and how light, always as a ratio against something else in the same run.

Both sides of a ratio run in turns, and medians are compared: a machine that is busy slows down both.  What is
measured::

    convolution   the operator, forward and backward, against the layout of the paper's appendix (`appendix`)
    layer         a Multi-Head Fourier layer, forward and backward, and what it keeps for backward
    training      one training step of a whole model
    profile       what a training step is spent on, and the floors that bytes and operations set
    throughput    one training step against other models of the same size: baselines, or variants of Caracal
    mixer         online convolution, one token at a context, against its slow twin
    generation    one token of a whole model at a context, against its slow twin and the whole forward pass

The modules: `config` (what is measured, and what a measurement is), `measure` (the stopwatch), `appendix` (what is
compared with), `operators`, `steps` and `decoding` (the rows), `run` (all of them, a table, a record).
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .appendix import AppendixFourier, appendix_conv
    from .config import BenchmarkConfig, Row
    from .run import run_benchmark

__all__ = ["AppendixFourier", "BenchmarkConfig", "Row", "appendix_conv", "run_benchmark"]

__getattr__, __dir__ = lazy(__name__, {"AppendixFourier": "appendix", "BenchmarkConfig": "config", "Row": "config",
                                       "appendix_conv": "appendix", "run_benchmark": "run"})
