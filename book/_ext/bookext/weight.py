"""Pages that load little: no script or style that a page does not use, and no script that blocks.

Font Awesome and the scripts at the end of the theme's pages go in book/_templates/static/webpack-macros.html.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes

from caracal_book.rules.drawings import share_figures
from caracal_book.viz import engine
from caracal_min import Caracal
from caracal_min.model import shipped_models

UNUSED = ("thebe", "design-tabs")
DESIGN = "sphinx-design"
MODELS = {"micro"}  # that figures load
OPTIONS = "documentation_options.js"  # a line of the theme's layout uses it at once

_PICTURE = re.compile(r'<img (?![^>]*loading=)(?=[^>]*src="(?!data:))')


def setup(app):
    app.connect("html-page-context", lighten, priority=900)
    app.connect("build-finished", change_files)


def lighten(app, pagename, templatename, context, doctree):
    """Take out what the page does not use, and let a script wait until the page is read.

    sphinx-thebe fails on every page, and the style of sphinx-design is for the pages with its directives.
    """
    unused = UNUSED if uses_design(doctree) else (*UNUSED, DESIGN)
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if not any(name in source_of(file) for name in unused)]
    for script in context["script_files"]:
        if script.filename and OPTIONS not in str(script.filename):
            script.attributes["defer"] = "defer"
    if "body" in context:
        context["body"] = _PICTURE.sub('<img loading="lazy" ', share_figures(context["body"]))


def source_of(file) -> str:
    """Return the name of a script or style, or the text of a script without a name."""
    return str(file.filename or file.attributes.get("body", ""))


def uses_design(doctree: nodes.document | None) -> bool:
    """Whether a page has elements of sphinx-design."""
    return doctree is not None and any(name.startswith("sd-") for node in doctree.findall(nodes.Element)
                                       for name in node.get("classes", ()))


def change_files(app, exception):
    """Remove the theme's Font Awesome, which no page loads, and write the models that a figure loads when asked."""
    if exception is None and app.builder.format == "html":
        static = Path(app.outdir, "_static")
        shutil.rmtree(static / "vendor" / "fontawesome", ignore_errors=True)
        for name in MODELS & {*shipped_models()}:
            engine.write(Caracal.from_pretrained(name, device="cpu"), static / name)
