"""Formulas without a request to another host: MathJax from an installed package, served with the pages.

`tex-svg-full.js` is one file that draws with SVG paths and needs no fonts.
"""

import shutil
from importlib.metadata import distribution
from pathlib import Path

FILE = "tex-svg-full.js"
TARGET = f"mathjax/{FILE}"


def setup(app):
    app.connect("config-inited", use_own_copy)
    app.connect("builder-inited", copy)


def use_own_copy(app, config):
    config.mathjax_path = TARGET


def copy(app):
    """Put the file in place before any page is written, so that its checksum is known."""
    if app.builder.format == "html":
        source = next(file for file in distribution("sphinx-mathjax-offline").files if file.name == FILE)
        target = Path(app.outdir, "_static", TARGET)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.locate(), target)
