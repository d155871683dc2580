"""The command line of the book's experiments: `python -m caracal_book COMMAND ...`, read as that of `caracal_min`."""

import sys
from collections.abc import Sequence

from caracal_min import __main__ as command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the command and return the exit status, as `caracal_min.__main__.main`."""
    return command_line.main(arguments, "caracal_book", "Run the experiments that the book shows.")


if __name__ == "__main__":
    sys.exit(main())
