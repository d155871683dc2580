"""Values that the cells of an executed notebook print, one `name = number` to a line.

A notebook here is what `nbformat` reads from an .ipynb file: a dict in which every source and every text is one string.
Nothing in this module needs Sphinx.  Read next: `prose_numbers`, which compares the text of a notebook with these
values.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from html import escape

NAME = r"[A-Za-z][A-Za-z0-9 ,.()/_-]*?"
_LINE = re.compile(
    rf"(?P<name>{NAME}) = (?P<number>-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"(?P<percent> ?%)?(?: (?P<unit>[^\s=][^=]{0,23}))?"
)


@dataclass(frozen=True)
class PrintedValue:
    """One `name = number` line: the number as printed, with its unit and the index of its cell."""

    name: str
    number: str
    percent: bool
    unit: str
    cell: int

    @property
    def decimal(self) -> Decimal:
        return Decimal(self.number.replace(",", ""))


@dataclass(frozen=True)
class Problem:
    """Something in a notebook that the build or a test must report: where, and one line of text."""

    cell: int
    message: str


def cell_tags(cell: dict) -> list[str]:
    return cell.get("metadata", {}).get("tags", [])


def printed_text(cell: dict) -> str:
    """Return what a code cell wrote to stdout, its pieces joined: a line may be split between them."""
    return "".join(output["text"] for output in cell.get("outputs", [])
                   if output["output_type"] == "stream" and output["name"] == "stdout")


def parse_line(line: str, cell: int = 0) -> PrintedValue | None:
    """Read one line of output; None unless the whole line is `name = number [unit]`."""
    match = _LINE.fullmatch(line.rsplit("\r", 1)[-1].strip())
    if match is None:
        return None
    return PrintedValue(match["name"], match["number"], match["percent"] is not None, match["unit"] or "", cell)


def all_printed(notebook: dict) -> Iterator[PrintedValue]:
    """Yield every value that the notebook prints, in order."""
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            for line in printed_text(cell).split("\n"):
                value = parse_line(line, index)
                if value is not None:
                    yield value


def printed_values(notebook: dict) -> tuple[dict[str, PrintedValue], list[Problem]]:
    """Collect the printed values by name, and a problem for each name that is printed twice."""
    values: dict[str, PrintedValue] = {}
    problems = []
    for value in all_printed(notebook):
        first = values.setdefault(value.name, value)
        if first is not value:
            problems.append(Problem(
                value.cell, f"'{value.name} = {value.number}' is printed here and in cell {first.cell}; "
                            "give each measured value a name of its own"))
    return values, problems


def number_html(number: str) -> str:
    """Write 3.1e-06 as 3.1 × 10⁻⁶ with a superscript; leave other numbers as they are printed."""
    mantissa, e, exponent = number.lower().partition("e")
    minus = mantissa.replace("-", "−")
    if not e:
        return escape(minus)
    return f"{escape(minus)} × 10<sup>{str(int(exponent)).replace('-', '−')}</sup>"
