"""Pages of Markdown are templates of Jinja, which take from the notebooks and the ledger what would be typed twice.

The landing page has cards of all chapters and the verdicts as they are counted, claims.md the ledger, notation.md the
chapters in which a symbol occurs; `figure` is a live figure of `caracal_book.viz` with micro.
"""

import re
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from jinja2 import Environment

from caracal_book import viz
from caracal_book.rules import cells
from caracal_book.rules.drawings import with_stills
from caracal_book.rules.figure_rules import OPENING
from caracal_book.rules.ledger import VERDICTS, slug
from caracal_book.rules.printed_values import cell_tags
from caracal_min import Caracal

_STILL = re.compile(r'class="caracal-still" src="data:image/svg\+xml,([^"]+)"')
_FORMULA, _WORDS = re.compile(r"\$([^$]+)\$"), re.compile(r"\\(?:text|mathrm|operatorname)\{[^}]*\}")


def setup(app):
    app.connect("source-read", write)
    app.connect("build-finished", write_stills)


def write(app, docname, source):
    """Fill in a page of Markdown."""
    if not app.env.doc2path(docname).endswith(".ipynb"):
        template = Environment(trim_blocks=True, keep_trailing_newline=True).from_string(source[0])
        claims = app.claims.values()
        source[0] = template.render(
            claims=claims, counts=Counter(claim.verdict for claim in claims), meaning=VERDICTS, slug=slug,
            notebooks=app.notebooks, part=partial(part, app), heading_of=cells.heading_of, number_of=cells.number_of,
            question_of=cells.question_of, hours=hours, opening=opening, figure=figure,
            occurs=partial(occurs, app.notebooks))


def part(app, caption: str) -> dict[str, dict]:
    """Return the notebooks of a part of _toc.yml, by stem."""
    (names,) = (tree.files() for tree in app.config.external_site_map.root.subtrees if tree.caption == caption)
    return {Path(name).name: app.notebooks[Path(name).name] for name in names if name.startswith("notebooks/")}


def hours(notebooks: dict[str, dict]) -> tuple[float, float]:
    """Return how many hours, to a half, notebooks take to read, and their exercises, as they say themselves."""
    reading, exercises = (sum(minutes) for minutes in zip(*map(cells.minutes_of, notebooks.values()), strict=True))
    return round(reading / 30) / 2, round(exercises / 30) / 2


def opening(notebook: dict) -> str:
    """Return the HTML of the figure that a chapter opens with."""
    return "".join(output.get("data", {}).get("text/html", "") for _, cell in cells.code_cells(notebook)
                   if OPENING in cell_tags(cell) for output in cell["outputs"])


def write_stills(app, exception):
    """Write the stills of the figures that chapters open with, for the cards."""
    for stem, notebook in app.notebooks.items() if exception is None else ():
        if still := _STILL.search(with_stills(opening(notebook))):
            svg = unquote(still[1]).replace("'", '"')  # as it was drawn
            Path(app.outdir, "_static", f"{stem}.svg").write_text(svg, encoding="utf-8")


def figure(name: str, text: str, **options) -> str:
    """Return the HTML of a figure with micro and a sentence."""
    return getattr(viz, name)(Caracal.from_pretrained("micro", device="cpu"), text, **options).to_html()


def occurs(notebooks: dict[str, dict], symbol: str) -> str:
    """Return links to the chapters in whose formulas a symbol occurs: its TeX, without a backslash."""
    alone = re.compile(rf"(?<![A-Za-z])\\?{re.escape(symbol)}(?![A-Za-z])")
    return ", ".join(f"[{cells.number_of(stem)}](../notebooks/{stem}.ipynb)" for stem, notebook in notebooks.items()
                     if any(alone.search(_WORDS.sub("", formula)) for _, text in cells.markdown_cells(notebook)
                            for formula in _FORMULA.findall(text)))
