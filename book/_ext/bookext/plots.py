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
_SIZE = re.compile(r'<svg\b[^>]*? width="([\d.]+)(pt)?" height="([\d.]+)(?:pt)?"')


def setup(app):
    app.connect("doctree-read", show_in_both_themes, priority=400)  # before Sphinx collects the images


def width_of(svg: str) -> float:
    """Return how wide a drawing is to stand on a page, in pixels."""
    width, unit = _SIZE.search(svg).group(1, 2)
    return float(width) * (_POINT * SCALE if unit else 1)


def show_in_both_themes(app, doctree):
    """Put two images, one for each theme, in the place of each drawing that a cell shows."""
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(".svg") and _in_output(image):
            path = Path(app.env.relfn2path(image["uri"], app.env.docname)[1])
            drawing = without_ground(path.read_text(encoding="utf-8"))
            try:
                drawings = {"light": rasters_in(drawing, palette), "dark": on_dark(drawing)}
            except ValueError as problem:
                logger.warning("a drawing %s", problem, location=image, type="plots")
                continue
            for theme, svg in zip((palette, dark), drawings.values(), strict=True):
                for problem in faint(svg, theme):
                    logger.warning("a drawing has %s", problem, location=image, type="plots")
            plot = nodes.container(classes=["plot"], **{key: image[key] for key in ("mime_type",) if key in image})
            for theme, svg in drawings.items():
                one = image.deepcopy()
                one["uri"] = image["uri"].removesuffix(".svg") + f"-on-{theme}.svg"
                one["classes"] += ["dark-light", f"on-{theme}"]  # the theme leaves `dark-light` as it is
                one["width"] = f"{width_of(svg):.0f}px"
                one["loading"] = "lazy"
                path.with_name(f"{path.stem}-on-{theme}.svg").write_text(svg, encoding="utf-8")
                plot += one
            image.replace_self(plot)


def _in_output(node: nodes.Node) -> bool:
    while node is not None and getattr(node, "attributes", {}).get("nb_element") != "cell_code_output":
        node = node.parent
    return node is not None
