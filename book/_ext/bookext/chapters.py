"""A chapter's head and its links: its number above the title, and the way to its solutions."""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from caracal_book.rules.cells import STEM, heading_of

SOLUTIONS = "book/solutions/"


def setup(app):
    app.add_post_transform(HeadOfChapter)


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
