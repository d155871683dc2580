"""Say in 90 seconds whether a change is worth a full run: python tools/check.py [--since REVISION]

Runs ruff, the rules on imports and on notebooks, and the quick tests that name a file which was changed since the
revision.  A change of the core also runs the tests of the whole model.  Quick tests are those without a mark;
pyproject.toml says what the marks are.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("compile", "process", "built", "browser", "slow")
WHOLE_MODEL = {"test_minimal", "test_model", "test_packing", "test_rooms"}
SHARED = {ROOT / name for name in ("pyproject.toml", "requirements.txt", "tests/conftest.py")}


def changed(since: str | None) -> set[Path]:
    """Return the files that differ from a revision; without one from HEAD, or, where nothing does, from its parent."""
    def git(*arguments: str) -> set[Path]:
        done = subprocess.run(["git", *arguments, "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return {ROOT / name for name in done.stdout.split("\0") if name}

    new = git("ls-files", "--others", "--exclude-standard")
    found = new | git("diff", "--name-only", since or "HEAD")
    return found if found or since else git("diff", "--name-only", "HEAD~1")


def reached(change: set[Path]) -> list[Path]:
    """Return the files of tests that name a changed file; all of them if it is of what they all share."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    if change & SHARED:
        return tests
    names = {path.parent.name if path.stem.startswith("__") else path.stem for path in change}
    if any(ROOT / "caracal_min" in path.parents for path in change):
        names |= WHOLE_MODEL
    named = re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, sorted(names))) or '$^'})(?![a-z])")
    return [test for test in tests if test in change or test.stem in names or named.search(test.read_text("utf-8"))]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a change quickly.")
    parser.add_argument("--since", help="revision to compare with; default: HEAD, or its parent if nothing differs")
    change = changed(parser.parse_args(arguments).since)
    tests = sorted({ROOT / "tests" / "unit" / "test_rooms.py", *reached(change)})
    print(f"{len(change)} files changed, {len(tests)} files of tests reached", flush=True)
    quick = " and ".join(f"not {mark}" for mark in MARKS)
    steps = [["ruff", "check", "--quiet", "caracal_min", "book", "tests", "tools"], ["caracal_book.rules"],
             ["pytest", "-n", "2", "--dist", "loadfile", "-m", quick, *map(str, tests)]]
    failed = []
    for step in steps:
        status = subprocess.run([sys.executable, "-m", *step], cwd=ROOT).returncode
        # pytest says 5 where all tests of the files have a mark.
        if status and (step[0], status) != ("pytest", 5):
            failed.append(step[0])
    print(f"failed: {', '.join(failed)}" if failed else "worth a full run: make test")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
