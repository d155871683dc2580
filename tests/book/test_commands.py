"""The command line of the experiments: every command is found, and a mistake is one line."""

import pytest

from caracal_book.__main__ import main
from caracal_book.commands import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_its_options_are(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    said = capsys.readouterr().out
    assert not stop.value.code and f"caracal_book {name} " in said and "--out" in said


def test_a_mistake_is_one_line(capsys):
    assert main([]) == 0 and all(f"  {name} " in capsys.readouterr().out for name in [*COMMANDS][:1])
    assert main(["rase"]) == 2
    assert capsys.readouterr().err.startswith("error: no command 'rase'; there are benchmark, ")
