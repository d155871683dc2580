"""The book's own Sphinx extension: measured numbers, the claims ledger, and a site without outside requests.

`printed_values`, `prose_numbers`, `ledger` and `notebook_rules` know nothing of Sphinx and are tested by
themselves; `measured`, `claims`, `docstrings`, `kernel`, `mathjax`, `progress`, `promises`, `site` and
`typography` connect them to the build.
"""

from . import claims, docstrings, kernel, mathjax, measured, progress, promises, site, typography


def setup(app):
    for part in (site, kernel, mathjax, progress, docstrings, measured, claims, promises, typography):
        part.setup(app)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
