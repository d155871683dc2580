"""How fast, always as a ratio against something else in the same run.

Both sides of a ratio run in turns, and medians are compared: a machine that is busy slows down both.  What is
measured::

    convolution   the operator, forward and backward, against the layout of the paper's appendix (`appendix`)
    layer         a Multi-Head Fourier layer, forward and backward, likewise
    profile       what a training step is spent on, by kind of work
    throughput    one training step against other models of the same size: baselines, or variants of Caracal
    trainer       a step of the Trainer, with clipping, batches and log, against the bare step
    mixer         online convolution, one token at a context, against its slow twin
    generation    one token of a whole model at a context, against its slow twin and the whole forward pass

The modules: `config` (what is measured, and what a measurement is), `measure` (the stopwatch), `appendix` (what is
compared with), `operators`, `steps` and `decoding` (the rows), `run` (all of them, a table, a record).
"""

from .appendix import AppendixFourier, appendix_conv
from .config import BenchmarkConfig, Row
from .run import run_benchmark

__all__ = ["AppendixFourier", "BenchmarkConfig", "Row", "appendix_conv", "run_benchmark"]
