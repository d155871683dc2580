"""Formulas become MathML when the book is built: every one of the book, numbers and references, and what is no TeX."""

import re
from xml.etree import ElementTree

import pytest
from bookext.formulas import block_tex, mathml

_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\$)([^$]+?)(?<!\\)\$", re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@pytest.fixture
def build(build_book):
    """A function that builds a book of one page and returns its warnings and its HTML."""

    def run(text: str) -> tuple[str, str]:
        warnings, html = build_book({"index.md": f"# Formulas\n\n{text}\n"}, "formulas")
        return warnings, (html / "index.html").read_text(encoding="utf-8")

    return run


def tree(tex: str, display: bool = True) -> ElementTree.Element:
    return ElementTree.fromstring(mathml(tex, display=display).replace("&ApplyFunction;", ""))


def texts(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def test_every_formula_of_the_book_is_read(root, notebooks):
    pages = [cell["source"] for notebook in notebooks.values() for cell in notebook["cells"]
             if cell["cell_type"] == "markdown"]
    pages += [path.read_text(encoding="utf-8") for path in (root / "book").rglob("*.md")]
    found = [match for page in pages for match in _FORMULA.finditer(_CODE.sub("", page))]
    assert len(found) > 1000
    for match in found:
        assert texts(tree(block_tex(match[1]) if match[1] else match[2], display=bool(match[1])))


def test_numbers_and_references_survive(build):
    warnings, page = build("$$r = a\n$$ (one)\n\n```{math}\n:label: two\nx &= y \\\\\nz &= w\n```\n\n"
                           "\\begin{align}\na &= b\n\\end{align}\n\nSee {eq}`two`, and $x$.")
    assert warnings == "" and not re.search("<script[^>]*mathjax", page, re.IGNORECASE)
    numbers = re.findall(r'id="equation-([\w-]+)".*?<span class="eqno">\((\d)\)', page, re.DOTALL)
    assert [number for _, number in numbers] == ["1", "2", "3"]
    assert dict(numbers)["two"] == "2" and 'href="#equation-two">(2)</a>' in page
    assert page.count("<math") == 4 and page.count("(3)") == 1, "TeX numbers nothing itself"


@pytest.mark.parametrize("tex", [r"\nosuchword", "a_{", r"\frac1"])
def test_what_is_no_formula_is_named(tex, build):
    with pytest.raises(ValueError, match="is not read"):
        mathml(tex, display=False)
    warnings, page = build(f"Here is ${tex}$.")
    assert f"the formula '{tex}' is not read" in warnings and "formula-error" in page
