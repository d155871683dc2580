"""A search that works from a file: the texts of all pages as one script, which the search page alone loads.

Sphinx's own search fetches each page that it finds to quote from it, and a browser fetches nothing for a page that was
opened from a file.  Here the words of the built pages, section by section and entry by entry of the API, stand in
`search_texts.js`; `search.js` looks through them.

`read_page` knows nothing of Sphinx.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from .chapters import SOLUTIONS, chapter_number

TEXTS = "search_texts.js"  # in _static
_VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
_UNREAD = {"annotation", "button", "footer", "nav", "pre", "script", "select", "style", "svg"}
_UNREAD_CLASSES = {"caracal-figure", "cell_output", "chapter-number", "claim-backlink", "headerlink", "hide",
                   "onlyprint", "to-solutions", "viewcode-link"}
_BLOCKS = {"blockquote", "br", "caption", "dd", "div", "dt", "figcaption", "h1", "h2", "h3", "h4", "li", "p", "td",
           "th", "tr"}


def setup(app):
    app.connect("builder-inited", lambda app: setattr(app.builder, "search", False))  # Sphinx's index and page
    app.connect("html-collect-pages", lambda app: [("search", {"title": "Search"}, "search.html")])
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_texts)


def add_scripts(app, pagename, templatename, context, doctree):
    if pagename == "search":
        app.add_js_file(TEXTS, loading_method="defer")
        app.add_js_file("search.js", loading_method="defer")


def kind_of(docname: str) -> int:
    """Return what a page is, in the order in which it is found: 0 a chapter, 1 prose, 2 solutions, 3 the API."""
    if docname.startswith("notebooks/"):
        return 0
    return 2 if docname.startswith(SOLUTIONS) else 3 if docname.startswith("book/api") else 1


def write_texts(app, exception):
    """Write what the search page looks through: of each page its address, title, kind and sections."""
    if exception is None and app.builder.format == "html":
        pages = []
        for docname in sorted(app.env.found_docs, key=lambda name: (kind_of(name), name)):
            path = Path(app.outdir, app.builder.get_target_uri(docname))
            title, number = app.env.titles[docname].astext(), chapter_number(docname)
            named = f"Chapter {number}: {title}" if number and kind_of(docname) == 0 else title
            pages.append([app.builder.get_target_uri(docname), named, kind_of(docname),
                          read_page(path.read_text(encoding="utf-8"))])
        text = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
        Path(app.outdir, "_static", TEXTS).write_text(f"const SEARCH_TEXTS = {text};\n", encoding="utf-8")


def read_page(html: str) -> list[tuple[str, str, str]]:
    """Return the sections of a page's article: the id to link to, the heading, and the words, without code and figures.

    An entry of the API is a section of its own, whose heading is the name, and so is a row of the ledger.
    """
    reader = _Article()
    reader.feed(html)
    return [(anchor, " ".join(heading.split()), " ".join(text.split()))
            for anchor, heading, text in reader.sections if heading.strip() or text.strip()]


class _Article(HTMLParser):
    """Collects the text of <article>, and where in it each piece belongs."""

    def __init__(self):
        super().__init__()
        self.sections: list[list[str]] = []
        self.open: list[tuple[str, int | None, bool, str]] = []  # tag, section before, unread, part before
        self.inside = self.unread = False
        self.at, self.part = None, "text"

    def handle_starttag(self, tag, attributes):
        if tag in _VOID:
            self.write(" ")
            return
        given = {key: value or "" for key, value in attributes}
        classes = set(given.get("class", "").split())
        self.open.append((tag, self.at, self.unread, self.part))
        if tag == "article" and "bd-article" in classes:
            self.inside = True
        if not self.inside:
            return
        self.unread = self.unread or tag in _UNREAD or bool(classes & _UNREAD_CLASSES)
        if tag == "section" and given.get("id"):
            self.begin(given["id"], "")
        elif tag == "dt" and "sig" in classes and given.get("id"):
            self.begin(given["id"], given["id"])
            self.unread = True
        elif tag == "tr" and given.get("id", "").startswith("ledger-"):
            self.begin(given["id"], f"Claim {given['id'].removeprefix('ledger-')}")
        elif re.fullmatch("h[1-6]", tag):
            self.part = "heading"
        if tag in _BLOCKS:
            self.write(" ")

    def handle_endtag(self, tag):
        if not any(opened == tag for opened, *_ in self.open):
            return
        while self.open:
            opened, at, self.unread, self.part = self.open.pop()
            if opened != "dt":  # the description that follows an entry's signature belongs to the entry
                self.at = at
            if opened == tag:
                break
        if tag == "article":
            self.inside = False
        if tag in _BLOCKS:
            self.write(" ")

    def handle_data(self, data):
        self.write(data)

    def begin(self, anchor: str, heading: str):
        self.sections.append([anchor, heading, ""])
        self.at = len(self.sections) - 1

    def write(self, data: str):
        if self.inside and not self.unread and self.at is not None:
            self.sections[self.at][1 if self.part == "heading" else 2] += data
