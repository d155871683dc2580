"""A repair of the package's docstrings for the API pages, where they are read as reStructuredText."""


def setup(app):
    app.connect("autodoc-process-docstring", keep_colons, priority=400)


def keep_colons(app, what, name, obj, options, lines):
    """Begin what describes an attribute with an empty comment.

    napoleon, which runs next, takes the words before a colon in the first line for the type of the attribute.
    """
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]
