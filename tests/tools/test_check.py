"""The quick check finds what a change reaches, and fails where something is wrong."""

import subprocess

import check


def test_a_change_reaches_the_tests_that_name_it_and_those_of_the_model(root):
    for name, reaches, leaves in (
            ("caracal_min/spectral.py", {"test_spectral", "test_minimal", "test_model"}, {"test_supply", "test_clock"}),
            ("book/caracal_book/viz/poke.js", {"test_poke"}, {"test_clock", "test_model"})):
        assert (root / name).is_file()
        found = {path.stem for path in check.reached({root / name})}
        assert reaches <= found and not leaves & found


def test_what_all_tests_share_reaches_all_of_them(root):
    assert len(check.reached({root / "tests" / "conftest.py"})) == len(list((root / "tests").rglob("test_*.py")))


def test_a_step_that_fails_is_named(monkeypatch, capsys):
    monkeypatch.setattr(check, "changed", lambda since: set())
    monkeypatch.setattr(check.subprocess, "run", lambda command, cwd: subprocess.CompletedProcess(
        command, 1 if "caracal_book.rules" in command else 5 if "pytest" in command else 0))
    assert check.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "failed: caracal_book.rules"
