"""The commands of `python -m caracal_book`, one module each: its options, and what it does with them::

    benchmark     speed and memory, as ratios
    count         tables of n-grams, which a model has to beat
    export_web    a model as scripts for a page
    forms         the Fourier layer changed in one thing, trained so, then ablated
    ladder        one hybrid with different long kernels
    learn         small models on tasks that tell mixers apart
    nine-numbers  kernels of a trained model replaced by a few numbers
    own-gates     what another text's gates cost while palindromes are learned
    race          whole models against each other
    record        what a training run leaves, as a record
    roofline      training steps by the clock, beside their count
    surgery       ablations of a trained model

A command is a dataclass, whose docstring and the texts under its fields are its help, and a function that takes an
object of it.  `caracal_book.__main__` reads the options with tyro.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """A command of the command line."""

    config: type
    """Dataclass of its options."""
    run: Callable[[Any], Any]
    """What is done with such options; raises ValueError or OSError, in one line, where they cannot be."""


COMMANDS = {
    "benchmark": "measure speed and memory on this machine, as ratios",
    "count": "count n-grams in a text: what a model has to beat",
    "evaluate": "measure a trained model on a text, as a record",
    "export-web": "write a trained model as scripts for a page in a browser",
    "forms": "train the Fourier layer changed in one thing, then ablate it",
    "ladder": "train one hybrid with different long kernels",
    "learn": "train small models on tasks that tell mixers apart",
    "nine-numbers": "replace the kernels of a trained model by a few numbers",
    "own-gates": "measure what another text's gates cost while palindromes are learned",
    "race": "train whole models against each other on the same text",
    "record": "turn the folder of a finished training run into a record",
    "roofline": "time training steps, beside what they must cost at this machine's rates",
    "surgery": "measure a trained model without each of its components",
}
"""What each command does, by name; the module of that name has the `COMMAND`."""
