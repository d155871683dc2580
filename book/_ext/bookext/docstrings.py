"""A repair of the package's docstrings for the API pages, where they are read as reStructuredText."""


def setup(app):
    app.connect("autodoc-process-docstring", keep_colons, priority=400)


def keep_colons(app, what, name, obj, options, lines):
    """Begin the docstring of an attribute or a constant with an empty comment.

    napoleon, which runs next, takes the words before a colon in the first line for its type.
    """
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]
