"""The book's own Sphinx extension: measured numbers, the claims ledger, and a site without outside requests.

What needs no Sphinx, the rules on notebooks and the arithmetic of drawings, is in `caracal_book.rules`; the modules
here connect it to the build.
"""

from importlib import import_module

_MODULES = ("site", "kernel", "formulas", "execution", "docstrings", "measured", "claims", "plots", "boxes", "chapters",
            "landing", "weight", "access")


def setup(app):
    for name in _MODULES:
        import_module(f".{name}", __package__).setup(app)
    return {"version": "1", "env_version": 4, "parallel_read_safe": True, "parallel_write_safe": True}
