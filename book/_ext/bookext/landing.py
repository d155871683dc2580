"""The landing page: the live cover, the verdicts as they are counted, and a card for each chapter.

The directives `cover`, `verdict-strip` and `chapter-cards` and the role `hours` take nothing that is typed twice: the
cover is the figure that a chapter opens with, the verdicts are counted in the ledger, and titles, questions, times and
pictures are the chapters' own, by part of _toc.yml.  `micro`, on any page, is a figure of `caracal_book.viz` with micro
and a sentence.
"""

import re
from html import escape
from pathlib import Path
from urllib.parse import unquote

import nbformat
from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from caracal_book import viz
from caracal_book.rules.cells import heading_of, minutes_of, question_of
from caracal_book.rules.drawings import on_dark, with_stills, without_ground
from caracal_book.rules.figure_rules import OPENING
from caracal_book.rules.ledger import VERDICTS, read_ledger, slug
from caracal_min import Caracal

from .by_page import ByPage
from .measured import notebook_of

logger = logging.getLogger(__name__)

DESCRIPTION = ("A language model built on polynomial multiplication, taken apart and put together: interactive "
               "figures, code that runs on a laptop, and what the Caracal paper says, checked.")
STILLS = "_static/chapters"
openings = ByPage("opening_figures")  # of chapters, as HTML
_STILL = re.compile(r'class="caracal-still" src="data:image/svg\+xml,([^"]+)" alt=')
_PLOT = '<image href="data:image/webp'  # of a live figure: drawn on white
# Light and dark change places, hues stay.
_TURNED = ('<filter id="turned" color-interpolation-filters="sRGB">'
           '<feColorMatrix values="-1 0 0 0 1 0 -1 0 0 1 0 0 -1 0 1 0 0 0 1 0"/>'
           '<feColorMatrix type="hueRotate" values="180"/></filter>' + _PLOT.replace(" ", ' filter="url(#turned)" ', 1))
_COVER = re.compile(r'(?<=<div class="cover-figure">)([\w/]+)(?=</div>)')


def setup(app):
    openings.connect(app)
    app.add_directive("cover", Cover)
    app.add_directive("micro", Micro)
    app.add_directive("verdict-strip", VerdictStrip)
    app.add_directive("chapter-cards", ChapterCards)
    app.add_role("hours", Hours())
    app.connect("doctree-read", keep_opening)
    app.connect("html-page-context", fill_in_cover)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_stills)


def keep_opening(app, doctree):
    """Keep the figure that a chapter opens with, for its card and for the cover."""
    for cell in doctree.findall(nodes.container):
        if OPENING in cell.get("cell_metadata", {}).get("tags", []):
            for raw in cell.findall(nodes.raw):
                if 'class="caracal-figure"' in raw.astext():
                    openings(app.env)[app.env.docname] = raw.astext()


def write_stills(app, exception):
    """Write the still of each opening figure in the colours of both themes, without the ground that it stands on."""
    if exception is None and app.builder.format == "html":
        folder = Path(app.outdir, STILLS)
        folder.mkdir(parents=True, exist_ok=True)
        for docname, html in openings(app.env).items():
            if not (still := _STILL.search(with_stills(html))):
                continue
            drawing = without_ground(unquote(still[1]).replace("'", '"'))  # as it was drawn
            for theme, coloured in (("light", drawing), ("dark", on_dark(drawing).replace(_PLOT, _TURNED))):
                (folder / still_name(docname, theme)).write_text(coloured, encoding="utf-8")


def still_name(docname: str, theme: str) -> str:
    """Return the name of the file that shows a chapter's opening figure on a theme, light or dark."""
    return f"{Path(docname).name}-on-{theme}.svg"


class Cover(SphinxDirective):
    """The figure that a chapter opens with, live; the argument is the chapter's page."""

    required_arguments = 1

    def run(self):
        self.env.note_dependency(self.env.doc2path(self.arguments[0]))
        return [nodes.raw("", f'<div class="cover-figure">{self.arguments[0]}</div>', format="html")]


def fill_in_cover(app, pagename, templatename, context, doctree):
    """Put the figure in the place of its chapter's name: not all chapters are read when the directive is."""
    def figure(found: re.Match) -> str:
        if found[1] not in openings(app.env):
            logger.warning("the cover is to show the figure that opens '%s', and there is none", found[1],
                           location=pagename, type="landing")
        return openings(app.env).get(found[1], "")

    if "body" in context:
        context["body"] = _COVER.sub(figure, context["body"])


class Micro(SphinxDirective):
    """A figure with micro, which the argument names in `caracal_book.viz`; the content is the sentence."""

    required_arguments = 1
    option_spec = {"seed": int}  # of what it wrote for the recording
    has_content = True

    def run(self):
        name = self.arguments[0]
        for path in Path(viz.__file__).parent.glob("*.*"):
            self.env.note_dependency(str(path))
        figure = getattr(viz, name)(Caracal.from_pretrained("micro", device="cpu"), " ".join(self.content),
                                    **self.options)
        return [nodes.raw("", figure.to_html(), format="html")]


class VerdictStrip(SphinxDirective):
    """How many claims of the ledger, the YAML file beside this page, have which verdict, as a bar and in words."""

    required_arguments = 2  # the ledger, and the page that shows it

    def run(self):
        path = Path(self.env.srcdir, self.arguments[0])
        self.env.note_dependency(str(path))
        claims = read_ledger(path)
        address = self.env.app.builder.get_relative_uri(self.env.docname, self.arguments[1])
        counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
        counts = {verdict: count for verdict, count in counts.items() if count}
        bar = "".join(f'<span class="verdict-{slug(v)}" style="flex-grow: {n}"></span>'
                      for v, n in counts.items())
        words = "".join(f'<li><a href="{address}#{slug(v)}"><b>{n}</b> <span class="verdict verdict-{slug(v)}">{v}'
                        "</span></a></li>" for v, n in counts.items())
        said = f"{len(claims)} statements of the paper, and what a cell of this book found of each:"
        return [nodes.raw("", f'<div class="verdict-strip"><p>{said}</p><div class="verdict-bar" aria-hidden="true">'
                              f"{bar}</div><ul>{words}</ul></div>", format="html")]


class ChapterCards(SphinxDirective):
    """A card for each chapter of a part of the book, and their time; the argument is the part's caption in _toc.yml."""

    required_arguments = 1

    def run(self):
        parts = {tree.caption: tree.files() for tree in self.env.external_site_map.root.subtrees}
        names = [name for name in parts.get(self.arguments[0], ()) if name.startswith("notebooks/")]
        if not names:
            raise self.error(f"_toc.yml has no chapters in a part '{self.arguments[0]}', only in {', '.join(parts)}")
        cards, minutes = [], []
        for name in names:
            self.env.note_dependency(self.env.doc2path(name))
            notebook = notebook_of(self.env, name)
            minutes.append(minutes_of(notebook))
            title, question = question_of(notebook)
            heading = heading_of(name.split("/")[1])
            root = self.env.app.builder.get_relative_uri(self.env.docname, "x").removesuffix("x.html")
            pictures = "".join(
                f'<img class="dark-light on-{theme}" src="{root}{STILLS}/{still_name(name, theme)}" loading="lazy" '
                f'alt="The figure that opens {heading.lower()}">' for theme in ("light", "dark"))
            cards.append(
                f'<li><a href="{self.env.app.builder.get_relative_uri(self.env.docname, name)}">'
                f'<span class="card-picture">{pictures}</span>'
                f'<span class="chapter-number">{heading}</span> <b>{escape(title)}</b>'
                f'<span class="card-question">{escape(question)}</span></a></li>')
        reading, exercises = (round(sum(times) / 60) for times in zip(*minutes, strict=True))
        said = f"About {reading} hours of reading and {exercises} of exercises."
        return [nodes.raw("", f'<p>{said}</p><ul class="chapter-cards">{"".join(cards)}</ul>', format="html")]


class Hours(SphinxRole):
    """How many hours all chapters take, as they say themselves: of `reading`, or of `exercises`."""

    def run(self):
        names = [name for tree in self.env.external_site_map.root.subtrees for name in tree.files()
                 if name.startswith("notebooks/")]
        for name in names:
            self.env.note_dependency(self.env.doc2path(name))
        minutes = [minutes_of(notebook_of(self.env, name))[self.text == "exercises"] for name in names]
        return [nodes.Text(f"{round(sum(minutes) / 60)} hours")], []


def describe(app, pagename, templatename, context, doctree):
    """Tell search engines and link previews what a page is; the picture needs a known address of the site."""
    words = DESCRIPTION
    if (path := Path(app.env.doc2path(pagename))).suffix == ".ipynb" and path.exists():
        words = question_of(nbformat.read(path, as_version=4))[1] or words
    tags = {"og:title": re.sub("<[^>]*>", "", context.get("title", "")), "og:description": words, "og:type": "article"}
    if app.config.html_baseurl:
        tags["og:image"] = f"{app.config.html_baseurl.rstrip('/')}/_static/social.png"
    lines = [f'<meta name="description" content="{escape(words)}">',
             *(f'<meta property="{name}" content="{escape(text)}">' for name, text in tags.items())]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)
