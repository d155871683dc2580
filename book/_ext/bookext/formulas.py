"""Formulas as MathML, made when the book is built: drawn without a script, read aloud, and copied as text.

math-core writes the part of MathML that the browsers share; the typeface is in book/_static/fonts, and
tools/math_font.py made it.  Numbers of equations and links to them are Sphinx's own.
"""

import re

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)

NAME = "mathml"
_NUMBERED = re.compile(r"\\(begin|end)\{(equation|align|gather|multline|alignat|flalign|eqnarray)\}")
_LABEL = re.compile(r"\\label\{[^}]*\}")


def setup(app):
    app.add_html_math_renderer(NAME, (visit_math, None), (visit_math_block, None))
    app.connect("config-inited", choose)


def choose(app, config):
    config.html_math_renderer = NAME


def mathml(tex: str, *, display: bool) -> str:
    """Return the MathML of a formula; ValueError, in one line, where it is no TeX that math-core knows."""
    try:
        return LatexToMathML(fancy_error=False).convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        raise ValueError(f"the formula '{tex}' is not read: {error}") from None


def block_tex(tex: str, environment: bool = False) -> str:
    r"""Return what one displayed formula is, for MathML.

    Args:
        tex: the text between the dollar signs or, for `environment`, from \begin to \end.
        environment: whether the text is an environment of AMS-LaTeX; Sphinx numbers it, so TeX shall not.

    Lines that \\ parts are aligned at &, and parts with a blank line between them stand below each other.
    """
    if environment:
        return _LABEL.sub("", _NUMBERED.sub(r"\\\1{\2*}", tex))
    parts = [part.strip() for part in tex.split("\n\n") if part.strip()]
    parts = [rf"\begin{{aligned}}{part}\end{{aligned}}" if r"\\" in part and not part.startswith(r"\begin{") else part
             for part in parts]
    return parts[0] if len(parts) == 1 else r"\begin{gathered}" + r"\\".join(parts) + r"\end{gathered}"


def _write(self, node: nodes.Element, tex: str, display: bool) -> None:
    try:
        self.body.append(mathml(tex, display=display))
    except ValueError as error:
        logger.warning(str(error), location=node)
        self.body.append(f'<code class="formula-error">{self.encode(node.astext())}</code>')


def visit_math(self, node):
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    _write(self, node, node.astext(), display=False)
    self.body.append("</span>")
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    _write(self, node, block_tex(node.astext(), environment=bool(node.get("nowrap"))), display=True)
    self.body.append("</div>\n")
    raise nodes.SkipNode
