"""Small repairs of the package's docstrings for the API page, where they are read as reStructuredText."""

_COLON = "\ue000"  # a private character that stands for a colon while napoleon looks at a docstring


def setup(app):
    app.connect("autodoc-process-docstring", keep_tables_literal)
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)


def keep_tables_literal(app, what, name, obj, options, lines):
    """In a module's docstring, show an indented block after a colon as it was typed, columns and all."""
    if what == "module":
        for index in range(len(lines) - 2):
            line = lines[index].rstrip()
            opens = line.endswith(":") and not line.endswith("::")
            if opens and not lines[index + 1].strip() and lines[index + 2].startswith("    "):
                lines[index] = line + ":"


def hide_colons(app, what, name, obj, options, lines):
    """Keep napoleon, which runs next, from reading the words before a colon as the type of an attribute."""
    if what in ("attribute", "property"):
        lines[:] = [line.replace(": ", f"{_COLON} ") for line in lines]


def show_colons(app, what, name, obj, options, lines):
    if what in ("attribute", "property"):
        lines[:] = [line.replace(_COLON, ":") for line in lines]
