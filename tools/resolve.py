"""Write constraints.txt: the versions of everything beneath the pins of requirements.txt.

    pip install uv
    python tools/resolve.py          # after a change of requirements.txt, or to take newer versions

One resolution holds for every Python and system that pyproject.toml promises; where they need different versions a
marker says which.  `make` installs with `pip --constraint constraints.txt`.  Left out are the direct pins, which stand
in requirements.txt, and the CUDA packages that some builds of PyTorch bring: which build an index has differs between
machines, and a build names its own.  There are no hashes for the same reason.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = "# What pip resolves beneath requirements.txt.  Written by tools/resolve.py; change nothing here by hand.\n"
_CUDA = re.compile(r"(nvidia|cuda)-|triton$|pytorch-triton")


def lowest_python() -> str:
    """Return the oldest Python that the package promises, as "3.11"."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")


def names(requirements: str) -> set[str]:
    """Return the packages that a file of requirements names."""
    lines = (line.partition("#")[0].strip() for line in requirements.splitlines())
    return {canonicalize_name(Requirement(line).name) for line in lines if line}


def constraints(resolved: str, direct: set[str]) -> str:
    """Return the text of constraints.txt for a whole resolution, one requirement a line."""
    kept = []
    for line in resolved.splitlines():
        name = canonicalize_name(Requirement(line).name)
        if name not in direct and not _CUDA.match(name):
            kept.append(line)
    return HEADER + "\n".join(kept) + "\n"


def main() -> int:
    """Resolve, and write the file."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if shutil.which("uv") is None:
        print("error: there is no uv; install it: pip install uv", file=sys.stderr)
        return 1
    requirements = ROOT / "requirements.txt"
    done = subprocess.run(["uv", "pip", "compile", requirements, "--universal", "--python-version", lowest_python(),
                           "--no-header", "--no-annotate", "--quiet"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    CONSTRAINTS.write_text(constraints(done.stdout, names(requirements.read_text())))
    print(f"{CONSTRAINTS} = {CONSTRAINTS.read_text().count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
