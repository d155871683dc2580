"""The command line of the book's experiments: `python -m caracal_book COMMAND [OPTIONS]`."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module

import tyro

from .commands import COMMANDS

__all__ = ["main"]

PROGRAM = "python -m caracal_book"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0 done, 2 what was asked for cannot be, as one line on stderr says.

    Args:
        arguments: words of the command line; None: those of this process.
    """
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} COMMAND [OPTIONS]\n")
        for command, (_, about) in COMMANDS.items():
            print(f"  {command:<12}{about}")
        return 0
    try:
        if name not in COMMANDS:
            raise ValueError(f"no command {name!r}; there are {', '.join(COMMANDS)}")
        # Imported by name, so that --help does not wait for everything that commands import.
        module, _, function = COMMANDS[name][0].rpartition(".")
        run = getattr(import_module(f".{module}", __package__), function)
        kind = run.__annotations__["config"]
        # The first option may be given by its value alone: `record runs/tiny`.
        if options and not options[0].startswith("-"):
            options = [f"--{fields(kind)[0].name}", *options]
        run(tyro.cli(kind, prog=f"{PROGRAM} {name}", args=options, config=(tyro.conf.OmitArgPrefixes,)))
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
