"""Say in two minutes whether a change is worth a full run: python tools/check.py [--since REVISION]

Runs ruff, the rules on imports and on notebooks, and the quick tests that the change reaches: those of which a file
that they import or name, at any distance (`caracal_book.rules.closure`), was changed since the revision.  Quick tests
are those without a marker; pyproject.toml says what the markers are.  All are reached where git cannot say
what changed, as in a clone of one commit.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from caracal_book.rules import closure

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = [ROOT / "tests" / "unit" / "test_rooms.py"]
MARKERS = ("compile", "process", "built", "browser", "slow")


def changed(since: str | None, root: Path = ROOT) -> set[Path]:
    """Return the files that differ from a revision; without one from HEAD, or, where nothing does, from its parent."""
    def git(*arguments: str) -> list[str]:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True,
                              check=True).stdout.split("\0")

    new = git("ls-files", "--others", "--exclude-standard", "-z")
    names = {*git("diff", "--name-only", "-z", since or "HEAD"), *new} - {""}
    if not names and since is None:
        names = {*git("diff", "--name-only", "-z", "HEAD~1")} - {""}
    return {root / name for name in names}


def reached(change: set[Path] | None, root: Path = ROOT) -> list[Path]:
    """Return the files of tests that a change reaches; all if it is unknown, or of what is installed or runs tests."""
    tests = sorted((root / "tests").rglob("test_*.py"))
    if change is None or change & {root / "pyproject.toml", root / "requirements.txt", root / "tests" / "conftest.py"}:
        return tests
    found = []
    for test in tests:
        beside = [folder / "conftest.py" for folder in test.parents
                  if (folder / "conftest.py").is_file() and root / "tests" in folder.parents]
        if any(change & closure.of_file(path, root) for path in (test, *beside)):
            found.append(test)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a change quickly.")
    parser.add_argument("--since", help="revision to compare with; default: HEAD, or its parent if nothing differs")
    since = parser.parse_args(arguments).since
    try:
        change = changed(since)
        said = f"{len(change)} files changed"
    except (OSError, subprocess.CalledProcessError) as error:  # no git, no repository, or a clone of one commit
        why = (getattr(error, "stderr", None) or str(error)).strip().partition("\n")[0]
        if since is not None:
            parser.error(f"git does not know what changed since {since}: {why}")
        change, said = None, f"what changed is unknown ({why})"
    tests = sorted({*ALWAYS, *reached(change)})
    print(f"{said}, {len(tests)} files of tests reached", flush=True)
    quick = " and ".join(f"not {marker}" for marker in MARKERS)
    steps = [["ruff", "check", "--quiet", "caracal_min", "book", "tests", "tools"], ["caracal_book.rules"],
             ["pytest", "-n", "2", "--dist", "loadfile", "-m", quick, *map(str, tests)]]
    failed = [step[0] for step in steps if subprocess.run([sys.executable, "-m", *step], cwd=ROOT).returncode not in
              ((0, 5) if step[0] == "pytest" else (0,))]  # 5: all tests of the files have a marker
    print(f"failed: {', '.join(failed)}" if failed else "worth a full run: make test")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
