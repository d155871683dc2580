"""The book's own Sphinx extension: numbers that notebooks print, pages from data, a site without outside requests.

What needs no Sphinx, the rules on notebooks and the arithmetic of drawings, is in `caracal_book.rules`; the modules
here connect it to the build.
"""

from importlib import import_module

_MODULES = ("site", "formulas", "execution", "docstrings", "measured", "pages", "plots", "boxes", "weight",
            "access")


def setup(app):
    for name in _MODULES:
        import_module(f".{name}", __package__).setup(app)
    app.connect("env-updated", share_the_work)
    return {"version": "1", "env_version": 5, "parallel_read_safe": True, "parallel_write_safe": True}


def share_the_work(app, env):
    """Let two processes write the pages that this one has read: sphinx.ext.viewcode, for one, reads alone."""
    app.parallel = 3
