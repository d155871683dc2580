"""What the theme and Sphinx leave nameless or misnamed for those who read with their ears or without a mouse.

The cover's link in the sidebar is a landmark by book/_templates/navbar-logo.html; colours are in book.css.
"""

import re

from bs4 import BeautifulSoup

_CITATION = re.compile(r' role="doc-biblioentry"')

_TABLE = re.compile(r'<div class="pst-scrollable-table-container"')
# A browser may break a line between a formula and the full stop that follows it.
_FORMULA = re.compile(r'[(\[‘“]*<span class="math [^>]*>(?:(?!</math>).)*</math></span>[.,;:?!)\]’”…]*', re.DOTALL)


def setup(app):
    app.connect("html-page-context", repair, priority=900)


def repair(app, pagename, templatename, context, doctree):
    """Name the folds of the sidebar, let keys scroll tables, call entries what they are, keep commas at formulas."""
    if "generate_toctree_html" in context:
        write = context["generate_toctree_html"]
        context["generate_toctree_html"] = lambda *args, **kwargs: name_folds(str(write(*args, **kwargs)))
    if "body" in context:
        context["body"] = _TABLE.sub(r'\g<0> tabindex="0" role="group" aria-label="Table"', _CITATION.sub(
            ' role="listitem"', context["body"]))
        context["body"] = _FORMULA.sub(r'<span class="keep-together">\g<0></span>', context["body"])


def name_folds(tree: str) -> str:
    """Return the sidebar's HTML with a name for each fold: the pages below the entry in front of it."""
    soup = BeautifulSoup(tree, "html.parser")
    for summary in soup.select("li > details > summary"):
        link = summary.find_parent("li").find("a", recursive=False)
        if link and not summary.get_text(strip=True):
            summary["aria-label"] = f"Pages below {link.get_text(strip=True)}"
    return str(soup)
