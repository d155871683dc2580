"""A chapter's head and its links: its number above the title, the way to its solutions, and where a symbol occurs."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxRole

from caracal_book.rules.cells import STEM, heading_of, markdown_cells, number_of

from .measured import notebook_of

SOLUTIONS = "book/solutions/"
_FORMULA, _WORDS = re.compile(r"\$([^$]+)\$"), re.compile(r"\\(?:text|mathrm|operatorname)\{[^}]*\}")


def setup(app):
    app.add_post_transform(HeadOfChapter)
    app.add_role("occurs", Occurs())


class Occurs(SphinxRole):
    """The chapters in whose formulas a symbol occurs, with links; the text is its TeX, without a backslash."""

    def run(self):
        symbol = re.compile(rf"(?<![A-Za-z])\\?{re.escape(self.text)}(?![A-Za-z])")
        found = []
        for tree in self.env.external_site_map.root.subtrees:
            for name in tree.files():
                folder, _, stem = name.rpartition("/")
                if folder == "notebooks" and STEM.fullmatch(stem):
                    self.env.note_dependency(self.env.doc2path(name))
                    formulas = (formula for _, text in markdown_cells(notebook_of(self.env, name))
                                for formula in _FORMULA.findall(text))
                    if any(symbol.search(_WORDS.sub("", formula)) for formula in formulas):
                        address = self.env.app.builder.get_relative_uri(self.env.docname, name)
                        found += [nodes.reference("", number_of(stem), internal=True, refuri=address), nodes.Text(", ")]
        return found[:-1], []


class HeadOfChapter(SphinxPostTransform):
    """Write the number above the title; link from the exercises to the solutions."""

    default_priority = 950
    formats = ("html",)

    def run(self, **kwargs):
        docname = self.env.docname
        folder, _, stem = docname.rpartition("/")
        title = next(iter(self.document.findall(nodes.title)), None)
        if folder != "notebooks" or not STEM.fullmatch(stem) or title is None:
            return
        title.insert(0, nodes.inline("", f"{heading_of(stem)} ", classes=["chapter-number"]))
        solutions = SOLUTIONS + stem
        exercises = next((section for section in self.document.findall(nodes.section)
                          if section[0].astext() == "Exercises"), None)
        if exercises is not None and solutions in self.env.found_docs:
            address = self.app.builder.get_relative_uri(docname, solutions)
            exercises.insert(1, nodes.paragraph("", "", nodes.reference(
                "", "Solutions to these exercises", internal=True, refuri=address), classes=["to-solutions"]))
