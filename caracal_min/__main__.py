"""The command line: `python -m caracal_min COMMAND ...`.

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
from contextlib import redirect_stderr, suppress
from difflib import get_close_matches
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

from .commands import Command
from .version import __version__

# Which of the errors of a file system the user can mend by another option; of a full disk, say, that is not so.
_REFUSED = (ValueError, ImportError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
            PermissionError)
_REFUSED_NUMBERS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL}
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|storage size calculation overflow",
                        re.IGNORECASE)
_RULE = re.compile(r"╰|[─-]{3,}$")
_UNITS = {"k": 10**3, "M": 10**6, "B": 10**9}


def main(arguments: Sequence[str] | None = None, package: str = "caracal_min",
         description: str = "Make, use and measure Caracal models.") -> int:
    """Parse a command line, run its command and return the exit status; an error is one line on stderr.

    0     done
    1     it failed, and another command line would not have helped: the disk is full, the loss diverged, another
          process of the run has ended, a machine on the network does not answer
    2     what was given cannot be: an option, a file, a folder, a device, more than fits into memory; or a package that
          the command needs is not installed
    130   interrupted
    141   what its output was written to was closed

    Args:
        arguments: words of the command line; None takes those of this process.
        package: whose `commands` there are.
        description: a sentence for the help.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack some of the characters that a model draws
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _run(sys.argv[1:] if arguments is None else list(arguments), package, description)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads the output has had enough: `sample ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except MemoryError as error:
        return _failed(f"there is not enough memory for this ({error}); ask for less at once", 2)
    except Exception as error:
        status = _status(error)
        if status is None and isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)):
            return _failed(f"there is not enough memory for this ({error}); ask for less at once", 2)
        if status is None:
            raise
        return _failed(error, status)
    return 0


def _run(arguments: list[str], package: str, description: str) -> None:
    """Do what a command line says."""
    commands, program = import_module(f"{package}.commands").COMMANDS, f"python -m {package}"
    name = arguments[0] if arguments else None
    if name in ("--help", "-h"):
        return print(_overview(commands, program, description))
    if name == "--version":
        return print(f"caracal-min {__version__}")
    if name not in commands:
        said = f"there is no command {name!r}"
        if name is None or name.startswith("-"):
            name, said = "", "no command is given" if name is None else f"give a command before {name!r}"
        near = get_close_matches(name, commands, 1)
        raise ValueError(f"{said}; {f'did you mean {near[0]}? ' if near else ''}"
                         f"there are {', '.join(commands)}; see {program} --help")
    command = import_module(f"{package}.commands.{name}").COMMAND
    config = _parse(arguments[1:], command, f"{program} {name}")
    if config is not None:
        from .training.settings import require_kinds

        require_kinds(config)
        command.run(command.prepared(config))


def _overview(commands: dict[str, str], program: str, description: str) -> str:
    """Return the text of `--help` without a command."""
    width = max(map(len, commands))
    return "\n".join([f"usage: {program} COMMAND [OPTIONS]", "", description, "",
                      *(f"  {name:<{width}}  {about}" for name, about in commands.items()), "",
                      f"{program} COMMAND --help lists the options of a command, --version the version."])


def _failed(error: object, status: int) -> int:
    """Print an error as one line and return the exit status."""
    if isinstance(error, OSError) and error.strerror:
        error = ": ".join(map(str, filter(None, (error.filename, error.strerror))))
    print(f"error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return status


def _status(error: BaseException) -> int | None:
    """Return 2 if an error, or what caused it, is the user's to mend, 1 if it is foreseen, None if it is a bug."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _REFUSED) or getattr(cause, "errno", None) in _REFUSED_NUMBERS:
            return 2
        cause = cause.__cause__
    from .training.distributed import LostProcessError  # not before an error: they import PyTorch
    from .training.folder import RunInUseError
    from .training.trainer import DivergedError

    if isinstance(error, RunInUseError):
        return 2
    return 1 if isinstance(error, (OSError, DivergedError, LostProcessError)) else None


def _parse(arguments: list[str], command: Command, program: str) -> Any:
    """Return the configuration that the words after a command describe; None if it was asked for help, now printed."""
    try:
        import tyro
    except ImportError:
        from .extras import missing

        raise missing("the command line", "tyro", "train") from None
    if command.first and arguments and not arguments[0].startswith("-"):
        arguments = [f"--{command.first}", *arguments]
    paths = {f"--{field.replace('_', join)}" for field, hint in get_type_hints(command.config).items()
             if Path in (hint, *get_args(hint)) for join in "_-"}
    given = list(zip(arguments, [*arguments[1:], None], strict=False))
    for option, value in given:
        if option in {f"{name}=" for name in paths} or option in paths and value == "":
            raise ValueError(f"{option.removesuffix('=')} is empty; give a path")
    defaults = {}
    if command.for_preset:  # what is done unless told otherwise depends on the preset: --help then shows the truth
        presets = [value for option, value in given if option == "--preset"]
        presets += [option.removeprefix("--preset=") for option in arguments if option.startswith("--preset=")]
        defaults["default"] = command.for_preset(presets[-1] if presets and presets[-1] is not None else "nano")
    said = io.StringIO()
    try:
        with redirect_stderr(said), _with_units(tyro):
            return tyro.cli(command.config, prog=program, args=arguments, config=(tyro.conf.OmitArgPrefixes,),
                            **defaults)
    except SystemExit as ended:
        if not ended.code:
            return None
        raise ValueError(f"{_first_words(said.getvalue())}; see {program} --help") from None


def _with_units(tyro: Any) -> Any:
    """Return a registry under which whole numbers may be given as 10_000_000, 10M or 1.5B."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def whole_number(info: Any) -> Any:
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1, metavar="INT", instance_from_str=lambda words: _whole_number(words[0]),
            is_instance=lambda value: isinstance(value, int), str_from_instance=lambda value: [f"{value:_}"])

    return registry


def _whole_number(word: str) -> int:
    """Return the whole number that a word gives, with a unit or without; ValueError if it is none."""
    unit = _UNITS.get(word[-1:], 1)
    with suppress(ValueError):
        if unit == 1:
            return int(word)
        number = Fraction(word[:-1]) * unit
        if re.fullmatch(r"[+-]?[\d_.]+", word[:-1]) and number.denominator == 1:
            return int(number)
    raise ValueError(f"{word!r} is no whole number; give one such as 4096, 10_000_000, 10M or 1.5B")


def _first_words(box: str) -> str:
    """Return what the parser says in a box, between its title and its first rule, in one line, and what it proposes.

    Where the output takes ASCII alone, the box has no sides, and a rule stands under the title too.
    """
    lines = [line.strip("│ \n") for line in box.splitlines()[1:]]
    said = itertools.dropwhile(_RULE.match, lines)
    words = " ".join(itertools.takewhile(lambda line: not _RULE.match(line), said))
    if words.startswith("Missing from"):
        return f"missing: {', '.join(re.findall(r'(?<= )--[a-z-]+(?= [A-Z{])', words))}"
    what, _, why = words.partition(": ")
    if option := re.fullmatch("Error parsing (.*)", what):  # of one option, or of the options together
        why = re.sub(r".*Got errors:.* - <\S+ \S+>: ", "", why)  # of the types that an option may have, the last
        words = f"{option[1]}: {why}" if option[1].startswith("-") else why
    near = re.search(r"Perhaps you meant:.*?(--[\w-]+)", " ".join(lines))
    return words + (f"; did you mean {near[1]}?" if near else "")


if __name__ == "__main__":
    sys.exit(main())
