"""The book's own Sphinx extension: measured numbers, the claims ledger, and a site without outside requests.

`cells`, `printed_values`, `prose_numbers`, `loose_numbers`, `ledger`, `figure_rules` and `notebook_rules` know nothing
of Sphinx and are tested by themselves; the other modules connect them to the build.
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
    promises,
    search,
    site,
    typography,
    weight,
)

_PARTS = (site, kernel, formulas, execution, docstrings, measured, claims, plots, boxes, chapters, landing, promises,
          typography, search, weight, access)


def setup(app):
    for part in _PARTS:
        part.setup(app)
    return {"version": "1", "env_version": 3, "parallel_read_safe": True, "parallel_write_safe": True}
