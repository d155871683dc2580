"""The commands of `python -m caracal_min`, one module each: its options, what it looks at first, what it does.

A command is a dataclass, whose fields are the options, and a function of it; a module is imported when its command is
given, so that `--help` need not wait for PyTorch::

    command     what a command is, and what several of them look at before the work begins
    train       a run, stopped cleanly by signals
    sample      a trained model continues a prompt
    evaluate    losses of a trained model, and the tasks of the paper's Table 2
    benchmark   speed and memory as ratios
    tokenize    text to shards
    export      a trained model as a file for other runtimes
    info        what a preset or a trained model is made of

`__main__` reads the command line and turns errors into exit statuses.
"""

from .command import Command

__all__ = ["COMMANDS", "Command"]

COMMANDS = {
    "train": "train a model, or go on with a run that was stopped",
    "sample": "continue a text with a trained model",
    "evaluate": "measure a trained model: loss on text, tasks of the paper's Table 2",
    "benchmark": "measure speed and memory on this machine, as ratios",
    "tokenize": "write a corpus as token shards, once, for many runs",
    "export": "write a trained model as an ONNX file or a torch.export program",
    "info": "describe a preset or a trained model",
}
"""What each command does, by name; the module of that name has the `COMMAND`."""
