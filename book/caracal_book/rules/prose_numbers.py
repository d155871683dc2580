"""Numbers in the text of a notebook, each checked against the value that a cell printed.

A number that a cell computes is followed directly by a comment that names the printed value::

    2047<!-- = smallest safe N -->      equal when the printed value is rounded to these digits
    3e-6<!-- ~ leak in float32 -->      within a factor of 2
    3e-6<!-- ~10 leak in float32 -->    within a factor of 10

The number may also be written as `$3\\times10^{-6}$`, `$10^{-6}$`, `$1.86$`, `**1.86**` or `86%`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from .printed_values import NAME, PrintedValue, Problem, printed_values

_COMMENT = re.compile(r"<!--\s*(?P<sign>[=~])(?P<rest>.*?)-->", re.DOTALL)
_RULE = re.compile(rf"(?P<factor>\d*)\s+(?P<name>{NAME})\s*")
_DIGITS = r"\d(?:\d|,(?=\d{3})|\{,\}(?=\d{3}))*(?:\.\d+)?"
_PLAIN = re.compile(rf"(?<![\d.,eE])(?P<number>[-−]?{_DIGITS}(?:[eE][+-]?\d+)?)(?P<percent>\s?\\?%)?[*_`]*$")
_POWER = re.compile(
    rf"\$(?P<number>[-−]?{_DIGITS})?\s*(?:(?:\\times|\\cdot)?\s*10\^(?:\{{(?P<braced>[-−]?\d+)\}}|(?P<bare>\d)))?"
    r"(?P<percent>\s?\\%)?\s*\$[*_`]*$"
)


@dataclass(frozen=True)
class Quote:
    """A number in the text: its value, the size of one unit in its last digit, and what it must agree with."""

    written: str
    value: Decimal
    last_digit: Decimal
    percent: bool
    factor: Decimal | None  # None: equal after rounding
    name: str


def check_notebook(notebook: dict) -> list[Problem]:
    """Compare every named number in the text of an executed notebook with what its cells printed."""
    values, problems = printed_values(notebook)
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            for quote in quotes(cell["source"]):
                message = quote if isinstance(quote, str) else disagreement(quote, values)
                if message:
                    problems.append(Problem(index, message))
    return problems


def quotes(text: str) -> Iterator[Quote | str]:
    """Yield the named numbers of a Markdown text; a string for a comment that cannot be read."""
    for comment in _COMMENT.finditer(text):
        rule = _RULE.fullmatch(comment["rest"])
        if rule is None or (comment["sign"] == "=" and rule["factor"]) or rule["factor"] in ("0", "1"):
            yield (f"the comment '{comment[0]}' is not understood; write <!-- = name -->, <!-- ~ name --> "
                   "or <!-- ~10 name -->")
            continue
        factor = None if comment["sign"] == "=" else Decimal(rule["factor"] or 2)
        number = _number_at_end(text[:comment.start()])
        if number is None:
            yield f"no number stands directly before '{comment[0]}'"
        else:
            yield Quote(*number, factor, rule["name"].rstrip())


def disagreement(quote: Quote, values: dict[str, PrintedValue]) -> str | None:
    """Return one line that says how the text differs from the printed value, None where it agrees."""
    printed = values.get(quote.name)
    if printed is None:
        return f"the text names a value '{quote.name}' that no cell prints"
    shown = f"the text says {quote.written}, the cell prints '{printed.name} = {printed.number}'"
    if quote.percent and not printed.percent:
        return f"{shown} without a per cent sign"
    if quote.factor is None:
        agrees = abs(printed.decimal - quote.value) * 2 <= quote.last_digit
        return None if agrees else f"{shown}, which does not round to it"
    agrees = _within(quote.value, printed.decimal, quote.factor)
    return None if agrees else f"{shown}, not within a factor of {quote.factor}"


def _within(a: Decimal, b: Decimal, factor: Decimal) -> bool:
    if a == 0 or b == 0:
        return a == b
    return (a > 0) == (b > 0) and abs(a) <= factor * abs(b) and abs(b) <= factor * abs(a)


def _number_at_end(text: str) -> tuple[str, Decimal, Decimal, bool] | None:
    """Read the number that the text ends with: as written, its value, one unit of its last digit, per cent."""
    match = _PLAIN.search(text) or _POWER.search(text)
    if match is None:
        return None
    groups = match.groupdict()
    power = groups.get("braced") or groups.get("bare")
    if groups["number"] is None and power is None:
        return None
    digits = re.sub(r"[,{}]", "", groups["number"] or "1").replace("−", "-")
    mantissa = Decimal(digits)
    scale = Decimal(10) ** int((power or "0").replace("−", "-"))
    last_digit = Decimal(1).scaleb(mantissa.as_tuple().exponent) * scale
    return match[0].strip("*_`"), mantissa * scale, last_digit, groups["percent"] is not None
