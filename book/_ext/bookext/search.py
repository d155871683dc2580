"""What Sphinx's search quotes from each page, as one script that the search page alone loads.

Sphinx fetches a page that it finds to quote from it, and a browser fetches nothing for a page that was opened from a
file.  search.js, in book/_static, hands it the words that are written here.
"""

import json
from pathlib import Path

from bs4 import BeautifulSoup

TEXTS = "search_texts.js"  # in _static
_UNREAD = (".bd-article pre, .bd-article script, .bd-article style, .bd-article annotation, .caracal-figure, "
           ".cell_output, .headerlink, .ledger-filter, .viewcode-link")


def setup(app):
    app.connect("build-finished", write_texts)


def write_texts(app, exception):
    """Write the words of every page, by the name under which Sphinx finds it."""
    if exception is None and app.builder.format == "html":
        texts = {name: words(Path(app.builder.get_outfilename(name)).read_text(encoding="utf-8"))
                 for name in sorted(app.env.found_docs)}
        text = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        Path(app.outdir, "_static", TEXTS).write_text(f"const SEARCH_TEXTS = {text};\n", encoding="utf-8")


def words(page: str) -> str:
    """Return the words of a page's article, without code, figures and what cells print."""
    soup = BeautifulSoup(page, "html.parser")
    for node in soup.select(_UNREAD):
        node.extract()
    article = soup.select_one(".bd-article")
    return " ".join(article.get_text().split()) if article else ""
