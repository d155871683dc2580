"""Pages that load little: no script or style that a page does not use, and no script that blocks.

Font Awesome and the scripts at the end of the theme's pages go in book/_templates/static/webpack-macros.html.
"""

import re
import shutil
from pathlib import Path

from caracal_book.rules.drawings import share_figures
from caracal_book.viz import engine
from caracal_min import Caracal

OPTIONS = "documentation_options.js"  # a line of the theme's layout uses it at once
_PICTURE = re.compile(r'<img (?![^>]*loading=)(?=[^>]*src="(?!data:))')


def setup(app):
    app.connect("html-page-context", lighten, priority=900)
    app.connect("build-finished", change_files)


def lighten(app, pagename, templatename, context, doctree):
    """Take out what the page does not use, and let a script wait until the page is read.

    sphinx-thebe fails on every page, and the style of sphinx-design is for the pages with its directives.
    """
    body = context.get("body", "")
    unused = ["thebe", "design-tabs", *(["sphinx-design"] if 'class="sd-' not in body else [])]
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind]
                         if not any(name in str(file.filename or file.attributes) for name in unused)]
    for script in context["script_files"]:
        if script.filename and OPTIONS not in str(script.filename):
            script.attributes["defer"] = "defer"
    context["body"] = _PICTURE.sub('<img loading="lazy" ', share_figures(body))


def change_files(app, exception):
    """Remove the theme's Font Awesome, which no page loads, and write the model that a figure loads when asked."""
    if exception is None:
        static = Path(app.outdir, "_static")
        shutil.rmtree(static / "vendor" / "fontawesome", ignore_errors=True)
        engine.write(Caracal.from_pretrained("micro", device="cpu"), static / "micro")
