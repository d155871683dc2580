"""One line for each chapter as it is executed: the build is otherwise silent but for warnings."""

import sys
import time
from functools import partial

from myst_nb.sphinx_ import NbMetadataCollector


def setup(app):
    app.connect("source-read", announce)
    app.connect("doctree-read", partial(report, time.time()))


def announce(app, docname, source):
    if app.env.doc2path(docname).endswith(".ipynb"):
        print(f"{docname} ... ", end="", file=sys.stderr, flush=True)


def report(started, app, doctree):
    if app.env.doc2path(app.env.docname).endswith(".ipynb"):
        data = NbMetadataCollector.get_exec_data(app.env, app.env.docname)
        print(outcome(data, started), file=sys.stderr)


def outcome(data: dict | None, started: float) -> str:
    """Say how a notebook was executed, from the record that myst-nb keeps of it."""
    if not data:
        return "not executed"
    seconds = "" if data["runtime"] is None else f" {data['runtime']:.0f} s"
    if data["mtime"] < started:
        return f"unchanged, outputs from the cache (they took{seconds or ' an unknown time'})"
    return f"executed in{seconds}" if data["succeeded"] else f"failed after{seconds}"
