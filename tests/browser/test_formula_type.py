"""Formulas are drawn by the browser itself, in the book's own typeface, and wide ones stay in their place."""

import re
from html import unescape

import pytest
from test_pages import CLAIMS, PAGES

pytestmark = [pytest.mark.browser, pytest.mark.built]

CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")] or [CLAIMS]
FACE = "Termes Math Part"

_LEAF = re.compile(r"<(mi|mo|mn|mtext)(?: [^>]*)?>([^<]+)</")
_UNSEEN = "\u2061\u200b\ufe00\xa0 "  # function application, variation selectors, spaces


def test_every_character_is_in_the_typeface(page, book, tmp_path):
    """A character that the book's part of the typeface lacks would be drawn with another one."""
    leaves = sorted({leaf for name in CHAPTERS for leaf in _LEAF.findall((book / name).read_text(encoding="utf-8"))
                     if unescape(leaf[1]).strip(_UNSEEN)})
    assert len(leaves) > 50
    face = (book / "_static" / "fonts" / "termes-math-part.woff2").as_uri()
    marked = "".join(f"<math><{tag}>{text}</{tag}></math> " for tag, text in leaves)
    path = tmp_path / "characters.html"
    style = f'@font-face {{ font-family: "{FACE}"; src: url({face}) }} math {{ font-family: "{FACE}" }}'
    path.write_text(f'<!doctype html><meta charset="utf-8"><style>{style}</style>{marked}', encoding="utf-8")
    page.goto(path.as_uri())
    page.evaluate("document.fonts.ready")
    session = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        session.send(f"{domain}.enable")
    top = session.send("DOM.getDocument")["root"]["nodeId"]
    nodes = session.send("DOM.querySelectorAll", {"nodeId": top, "selector": "math > *"})["nodeIds"]
    assert len(nodes) == len(leaves)
    for node, leaf in zip(nodes, leaves, strict=True):
        fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        assert fonts and {(font["familyName"], font["isCustomFont"]) for font in fonts} == {(FACE, True)}, leaf
