"""The book's own Sphinx extension: measured numbers, the claims ledger, and a site without outside requests.

What needs no Sphinx, the rules on notebooks and the arithmetic of drawings, is in `caracal_book.rules`; the modules
here connect it to the build.
"""

from . import (
    access,
    boxes,
    chapters,
    claims,
    docstrings,
    execution,
    formulas,
    kernel,
    landing,
    measured,
    plots,
    search,
    site,
    typography,
    weight,
)

_MODULES = (site, kernel, formulas, execution, docstrings, measured, claims, plots, boxes, chapters, landing,
            typography, search, weight, access)


def setup(app):
    for module in _MODULES:
        module.setup(app)
    return {"version": "1", "env_version": 4, "parallel_read_safe": True, "parallel_write_safe": True}
