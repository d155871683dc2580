"""Packages that some of this one needs and that are not installed with it: what to say where one is missing."""

import re
from importlib.metadata import PackageNotFoundError, requires

__all__ = ["missing"]

DISTRIBUTION = "caracal-min"


def missing(need: str, package: str, extra: str | None = None) -> ImportError:
    """Return the error, in one line, that says what needs a package and which command installs it.

    The command names packages of the index alone, with the versions that the metadata of this package asks for, and
    never this package, which came from wherever it came from and may not be on an index.

    Args:
        need: who needs it: "the baselines".
        package: a distribution, as pip knows it: "transformers".
        extra: the extra of this package that it belongs to, all of which is then to be installed; None installs
            the package alone.

    Example:
        >>> print(missing("the drawing", "no-such-package"))
        the drawing needs no-such-package: pip install no-such-package
    """
    wanted = [stated for name, stated in _stated(extra) if extra or name == package] or [package]
    return ImportError(f"{need} needs {package}: pip install {' '.join(map(_quoted, dict.fromkeys(wanted)))}")


def _stated(extra: str | None) -> list[tuple[str, str]]:
    """Return name and requirement, "transformers" and "transformers>=5", as the metadata of an extra states them."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # a copied folder, not an installed package
        return []
    found = []
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if extra is None or re.search(rf"""extra\s*==\s*["']{re.escape(extra)}["']""", marker):
            found.append((re.match(r"[\w.-]+", requirement)[0], requirement))
    return found


def _quoted(requirement: str) -> str:
    """Return a requirement as a shell takes it, of Unix and of Windows."""
    return requirement if re.fullmatch(r"[\w.-]+", requirement) else f'"{requirement}"'
