"""The plots of the notebooks in the colours of both themes, on the ground of the page.

The build takes the ground away from each drawing, writes it a second time in the dark colours, and shows the one that
fits the page.  The second one loads only where it is shown.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

from caracal_book.rules.drawings import faint, on_dark, rasters_in, without_ground
from caracal_book.viz.style import dark, palette

logger = logging.getLogger(__name__)

SCALE = 1.15  # of a plot's own size: its letters are then nearly as large as those of the text
_POINT = 4 / 3  # pixels
_WIDTH = re.compile(r'<svg\b[^>]*? width="([\d.]+)(pt)?"')


def setup(app):
    app.connect("doctree-read", show_in_both_themes, priority=400)  # before Sphinx collects the images


def show_in_both_themes(app, doctree):
    """Put two images, one for each theme, in the place of each drawing that a cell shows."""
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(".svg") and "jupyter_execute" in image["uri"]:  # what myst-nb wrote of an output
            path = Path(app.env.relfn2path(image["uri"], app.env.docname)[1])
            drawing = without_ground(path.read_text(encoding="utf-8"))
            width, points = _WIDTH.search(drawing).groups()
            plot = nodes.container(classes=["plot"])
            try:
                drawings = (palette, "light", rasters_in(drawing, palette)), (dark, "dark", on_dark(drawing))
            except ValueError as problem:
                logger.warning("a drawing %s", problem, location=image, type="plots")
                continue
            for theme, name, coloured in drawings:
                for problem in faint(coloured, theme):
                    logger.warning("a drawing has %s", problem, location=image, type="plots")
                one = image.deepcopy()
                one["uri"] = image["uri"].removesuffix(".svg") + f"-on-{name}.svg"
                one["classes"] += ["dark-light", f"on-{name}"]  # the theme leaves `dark-light` as it is
                one["width"] = f"{float(width) * (_POINT * SCALE if points else 1):.0f}px"
                one["loading"] = "lazy"
                path.with_name(Path(one["uri"]).name).write_text(coloured, encoding="utf-8")
                plot += one
            image.replace_self(plot)
