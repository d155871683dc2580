"""The command line: `python -m caracal_min COMMAND ...`.

The commands are tokenize, train, sample, evaluate, benchmark, export and info.

Here a command line is read and an error becomes an exit status; what there is to do stands in `commands`.  Options are
generated from the dataclass of each command; `--help` after a command lists them.
"""

import errno
import io
import itertools
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_type_hints

from .commands import COMMANDS, Command
from .extras import missing
from .training.distributed import LostProcessError
from .training.folder import RunInUseError
from .training.settings import require_kinds
from .training.trainer import DivergedError
from .version import __version__

# Which of the errors of a file system the user can mend by another option; of a full disk, say, that is not so.
_REFUSED = (ValueError, ImportError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
            PermissionError, RunInUseError)
_REFUSED_NUMBERS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL}
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|storage size calculation overflow",
                        re.IGNORECASE)
_RULE = re.compile(r"╰|[─-]{3,}$")


def main(arguments: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS, package: str = "caracal_min",
         description: str = "Make, use and measure Caracal models.") -> int:
    """Parse a command line of `commands`, run the command and return the exit status; an error is one line on stderr.

    0     done
    1     it failed, and another command line would not have helped: the disk is full, the loss diverged, another
          process of the run has ended, a machine on the network does not answer
    2     what was given cannot be: an option, a file, a folder, a device, more than fits into memory; or a package that
          the command needs is not installed
    130   interrupted
    141   what its output was written to was closed
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack some of the characters that a model draws
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        config = _parse(given, commands, f"python -m {package}", description)
        if config is not None:
            require_kinds(config)
            command = next(command for command in commands if command.config is type(config))
            command.run(command.prepared(config))
        sys.stdout.flush()
    except BrokenPipeError:  # who reads the output has had enough: `sample ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (*_REFUSED, OSError, DivergedError, LostProcessError) as error:
        return _failed(error, _status(error))
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        return _failed(f"there is not enough memory for this ({error}); ask for less at once", 2)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    return 0


def _failed(error: object, status: int) -> int:
    """Print an error as one line and return the exit status."""
    if isinstance(error, OSError) and error.strerror:
        error = ": ".join(map(str, filter(None, (error.filename, error.strerror))))
    print(f"error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return status


def _status(error: BaseException | None) -> int:
    """Return 2 if an error, or what caused it, is the user's to mend, else 1."""
    while error is not None:
        if isinstance(error, _REFUSED) or getattr(error, "errno", None) in _REFUSED_NUMBERS:
            return 2
        error = error.__cause__
    return 1


def _parse(arguments: list[str], commands: Sequence[Command], program: str, description: str) -> Any:
    """Return the configuration that a command line describes; None if it asked for help, which is then printed."""
    if arguments == ["--version"]:
        return print(f"caracal-min {__version__}")
    try:
        import tyro
    except ImportError:
        raise missing("the command line", "tyro", "train") from None
    paths = {f"--{field.replace('_', join)}" for command in commands
             for field, hint in get_type_hints(command.config).items() if Path in (hint, *get_args(hint))
             for join in "_-"}
    given = list(zip(arguments, [*arguments[1:], None], strict=False))
    for option, value in given:
        if option in {f"{name}=" for name in paths} or option in paths and value == "":
            raise ValueError(f"{option.removesuffix('=')} is empty; give a path")
    # What `train` and others do unless told depends on the preset, so it is read first: --help then shows the truth.
    presets = [value for option, value in given if option == "--preset"]
    presets += [option.removeprefix("--preset=") for option in arguments if option.startswith("--preset=")]
    preset = presets[-1] if presets and presets[-1] is not None else "nano"
    kinds = tuple(Annotated[command.config, tyro.conf.subcommand(command.name, **(
        {"default": command.for_preset(preset)} if command.for_preset else {}))] for command in commands)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(Union[kinds], prog=program, args=arguments,  # noqa: UP007
                            description=description, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as ended:
        if not ended.code:
            return None
        raise ValueError(f"{_first_words(said.getvalue())}; see {program} --help") from None


def _first_words(box: str) -> str:
    """Return what the parser says in a box, between its title and its first rule, in one line.

    Where the output takes ASCII alone, the box has no sides, and a rule stands under the title too.
    """
    lines = [line.strip("│ \n") for line in box.splitlines()[1:]]
    said = itertools.dropwhile(_RULE.match, lines)
    words = " ".join(itertools.takewhile(lambda line: not _RULE.match(line), said))
    return re.sub(r"^Error parsing \w+: ", "", words)


if __name__ == "__main__":
    sys.exit(main())
