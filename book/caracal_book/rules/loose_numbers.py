"""Loose numbers beside comparisons: what a sentence concludes, a cell must assert.

A number marked `<!-- ~ name -->` may differ from the printed value by a factor, and yet the sentence around it may say
that something is faster or lies within a bound, which another machine then contradicts.  So in a sentence with a
comparison each loose number needs an `assert` on what is printed under its name:

    print(f"matrix against it = {ratio:.1f} times")       the matrix takes 4<!-- ~3 matrix against it --> times as long
    assert ratio > 1

A sentence ends at a full stop or question mark before a space, at an empty line, a list item or a row of a
table.  A comparison is one of the words of `COMPARISON`; a superlative that names a quantity, such as "the largest
error", is none.  An assert is on what is printed when it holds the printed expression, without constant factors,
`int()`, `float()` and `.item()`:

    print(f"growth, {name} = {100 * growth[name]:.0f}%")  for "growth, FFT":  growth["FFT"], growth[name] or growth

It may stand in another cell, if no cell between binds one of the expression's names anew.

Nothing here looks at outputs: the rule holds for notebooks as they are stored.  `prose_numbers` compares the numbers.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .printed_values import Problem
from .prose_numbers import Quote, quotes

COMPARISON = re.compile(
    r"(?<!\\)\b(?:than|times|twice|as (?:fast|slow|long|large|small|good|bad|much|many|little|few) as|half as|hardly"
    r"|more|less|fewer|most|least|faster|slower|quicker|cheaper|dearer|larger|smaller|bigger|longer|shorter|higher|lower"
    r"|greater|better|worse|best|worst|fastest|slowest|cheapest|above|below|against|within|between|up to|beyond"
    r"|agrees? to|good to|right to|beats?|beaten|wins?|won|loses?|lost|overtakes?|exceeds?|crossovers?|pays?"
    r")\b", re.IGNORECASE)

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BOUNDARY = re.compile(r"[.?!][)\"*_$]*(?=\s)|\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.|#+)\s)|\n(?=\|)")
_ANY = "any"      # the key of a subscript that a variable names


class Printed(NamedTuple):
    """A `print` of `name = value`: the cell, a pattern for the names with its loop variables, the expression."""

    cell: int
    name: re.Pattern
    variables: tuple[str | None, ...]
    value: ast.expr


class Asserted(NamedTuple):
    cell: int
    test: ast.expr


def unasserted(texts: Mapping[int, str], trees: Mapping[int, ast.Module]) -> Iterator[Problem]:
    """Yield a problem for each loose number beside a comparison that no assert names.

    texts: the Markdown cells; trees: the code cells, parsed; both by their index in the notebook.
    """
    nodes = [(cell, node) for cell, tree in trees.items() for node in ast.walk(tree)]
    prints = [found for cell, node in nodes if (found := _printed(cell, node)) is not None]
    asserts = [Asserted(cell, _plain(node.test)) for cell, node in nodes if isinstance(node, ast.Assert)]
    binds: dict[int, set[str]] = {}
    for cell, node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            binds.setdefault(cell, set()).add(node.id)
    for cell, text in texts.items():
        for sentence in sentences(text):
            word = COMPARISON.search(_COMMENT.sub("", sentence))
            loose = [quote for quote in quotes(sentence) if isinstance(quote, Quote) and quote.factor is not None]
            for quote in loose if word else []:
                if not any(_names(printed, quote.name, asserts, binds) for printed in prints):
                    yield Problem(cell, f"{quote.written} (~ {quote.name}) is loose and stands beside '{word[0]}', but "
                                        "no assert holds the expression that is printed under this name")


def sentences(text: str) -> Iterator[str]:
    """Split a Markdown text into its sentences, each with the comments that stand in it."""
    blank = _COMMENT.sub(lambda comment: "·" * len(comment[0]), text)
    start = 0
    for end in [match.end() for match in _BOUNDARY.finditer(blank)] + [len(text)]:
        if text[start:end].strip():
            yield text[start:end]
        start = end


def _printed(cell: int, node: ast.AST) -> Printed | None:
    """Read `print(f"name = {value} unit")`; None for anything else."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and node.args
            and isinstance(node.args[0], ast.JoinedStr)):
        return None
    pattern, variables = "", []
    for part in node.args[0].values:
        if isinstance(part, ast.Constant):
            pattern += re.escape(part.value)
        elif pattern.endswith(re.escape(" = ")):
            name = pattern.removesuffix(re.escape(" = "))
            return Printed(cell, re.compile(name), tuple(variables), _plain(part.value))
        else:
            pattern += "(.+?)"
            variables.append(part.value.id if isinstance(part.value, ast.Name) else None)
    return None


def _names(printed: Printed, name: str, asserts: list[Asserted], binds: Mapping[int, set[str]]) -> bool:
    """Whether the print makes a value of this name, and an assert holds its expression."""
    match = printed.name.fullmatch(name)
    if match is None:
        return False
    loop = dict(zip(printed.variables, match.groups(), strict=True))
    used = {node.id for node in ast.walk(printed.value) if isinstance(node, ast.Name)} - set(loop)
    for cell, test in asserts:
        between = range(min(cell, printed.cell) + 1, max(cell, printed.cell) + 1)
        if not any(used & binds.get(other, set()) for other in between) and _holds(test, printed.value, loop):
            return True
    return False


def _holds(test: ast.expr, value: ast.expr, loop: Mapping[str | None, str]) -> bool:
    """Whether a test contains the expression, or the whole container of which the expression is an item."""
    items = {id(node.value) for node in ast.walk(test) if isinstance(node, ast.Subscript)}
    while True:
        if any(_same(node, value, loop) and id(node) not in items for node in ast.walk(test)):
            return True
        if not isinstance(value, ast.Subscript):
            return False
        value = value.value


def _same(a: object, b: object, loop: Mapping[str | None, str]) -> bool:
    """Whether two parts of trees are the same expression; keys of subscripts agree where a variable names one."""
    if isinstance(a, ast.Subscript) and isinstance(b, ast.Subscript):
        keys = {_key(a.slice, {}), _key(b.slice, loop)}
        return (_ANY in keys or len(keys) == 1) and _same(a.value, b.value, loop)
    if isinstance(a, ast.AST) and isinstance(b, ast.AST):
        return type(a) is type(b) and all(_same(getattr(a, field), getattr(b, field), loop) for field in a._fields
                                          if field != "ctx")
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, loop) for x, y in zip(a, b, strict=True))
    return a == b


def _key(node: ast.expr, loop: Mapping[str | None, str]) -> str:
    if isinstance(node, ast.Name):
        return f"={loop[node.id]}" if node.id in loop else _ANY
    try:
        return f"={ast.literal_eval(node)}"
    except ValueError:
        return f"={ast.unparse(node)}"


def _plain(node: ast.expr) -> ast.expr:
    """Return an expression without constant factors, `int()`, `float()` and `.item()`."""
    return _Plain().visit(node)


class _Plain(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant):
            return node.right
        if isinstance(node.op, ast.Mult | ast.Div) and isinstance(node.right, ast.Constant):
            return node.left
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("int", "float") and len(node.args) == 1:
            return node.args[0]
        return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "item" else node
