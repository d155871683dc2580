"""The commands of `python -m caracal_min`, one module each: its options, what it looks at first, what it does.

A command is a dataclass, whose fields are the options, and a function of it.  The room `benchmark` has both, so its
command has no module here::

    command     what a command is, and what several of them look at before the work begins
    tokenize    text to shards
    train       a run, stopped cleanly by signals
    sample      a trained model continues a prompt
    evaluate    losses of a trained model, and the tasks of the paper's Table 2
    export      a trained model as a file for other runtimes
    info        what a preset or a trained model is made of
    table       all of them

`__main__` reads the command line and turns errors into exit statuses.
"""

from .command import Command
from .table import COMMANDS

__all__ = ["COMMANDS", "Command"]
