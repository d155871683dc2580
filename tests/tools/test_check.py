"""The quick check finds what a change reaches, and fails where something is wrong."""

import subprocess

import check
import pytest


@pytest.mark.parametrize("name, reaches, leaves", [
    ("caracal_min/spectral.py", {"test_convolution", "test_model", "test_spectral"}, {"test_check", "test_svg"}),
    ("book/caracal_book/viz/clock.js", {"test_clock"}, {"test_poke", "test_convolution"}),
    ("book/caracal_book/exercises/wrap_around.py", {"test_wrap_around"}, {"test_generating", "test_roots"}),
    ("tools/check.py", {"test_check"}, {"test_rooms"}),
    ("caracal_min/pretrained/micro/model.safetensors", {"test_pretrained", "test_why"}, {"test_check", "test_svg"}),
])
def test_a_change_reaches_the_tests_that_import_or_name_it(name, reaches, leaves, root):
    assert (root / name).is_file()
    found = {path.stem for path in check.reached({root / name}, root)}
    assert reaches <= found and not leaves & found


def test_what_is_installed_reaches_all_tests(root):
    assert len(check.reached({root / "requirements.txt"}, root)) == len(list((root / "tests").rglob("test_*.py")))


def repository(folder, *names):
    """A repository of a commit for each file."""
    def git(*arguments):
        me = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(folder), *me, *arguments], check=True)

    git("init", "-q")
    for name in names:
        (folder / name).write_text("")
        git("add", "-A")
        git("commit", "-qm", name)


def test_what_changed_is_what_differs_and_else_the_last_commit(tmp_path):
    repository(tmp_path, "one.py", "two.py")
    assert check.changed(None, tmp_path) == {tmp_path / "two.py"}
    (tmp_path / "three.py").write_text("")
    assert check.changed(None, tmp_path) == {tmp_path / "three.py"}
    assert check.changed("HEAD~1", tmp_path) == {tmp_path / "two.py", tmp_path / "three.py"}


@pytest.mark.parametrize("names", [("one.py",), ()], ids=["a clone of one commit", "an archive"])
def test_all_tests_are_reached_where_git_cannot_say_what_changed(names, root, tmp_path, monkeypatch, capsys):
    changed, run, steps = check.changed, subprocess.run, []

    def noted(command, **options):
        if command[0] == "git":
            return run(command, **options)
        steps.append(command)
        return subprocess.CompletedProcess(command, 0)

    if names:
        repository(tmp_path, *names)
    monkeypatch.setattr(check, "changed", lambda since: changed(since, tmp_path))
    monkeypatch.setattr(check.subprocess, "run", noted)
    assert check.main([]) == 0 and {str(path) for path in (root / "tests").rglob("test_*.py")} <= {*steps[-1]}
    assert capsys.readouterr().out.startswith("what changed is unknown (fatal: ")
    with pytest.raises(SystemExit):
        check.main(["--since", "nowhere"])
    assert "git does not know what changed since nowhere: fatal: " in capsys.readouterr().err


def test_a_step_that_fails_is_named(monkeypatch, capsys):
    monkeypatch.setattr(check, "changed", lambda since: set())
    monkeypatch.setattr(check.subprocess, "run", lambda command, cwd: subprocess.CompletedProcess(
        command, 1 if "caracal_book.rules" in command else 5 if "pytest" in command else 0))
    assert check.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "failed: caracal_book.rules"
