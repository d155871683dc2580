"""A kernel that is the same for everybody, and whose widgets no page waits for.

The reader's own IPython profile does not reach the chapters.  A widget lives as long as its kernel, so that a page
shows the HTML that stands beside it, and does not carry its state.
"""

import os
from pathlib import Path

from myst_nb.sphinx_ import NbMetadataCollector

# Kernels here talk to nothing but the build; 40 is logging.ERROR.
_CONFIG = "c.IPKernelApp.log_level = 40\n"
_WIDGET = "application/vnd.jupyter.widget-view+json"


def setup(app):
    app.connect("config-inited", leave_out_widgets)
    app.connect("html-page-context", leave_out_their_state, priority=400)  # before myst-nb writes it
    app.connect("builder-inited", use_fresh_profile)


def leave_out_widgets(app, config):
    config.nb_mime_priority_overrides = [*config.nb_mime_priority_overrides, ("html", _WIDGET, None)]


def leave_out_their_state(app, pagename, templatename, context, doctree):
    NbMetadataCollector.get_js_files(app.env, pagename).pop("ipywidgets_state", None)


def use_fresh_profile(app):
    folder = Path(app.outdir).parent / ".ipython"
    config = folder / "profile_default" / "ipython_kernel_config.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(_CONFIG, encoding="utf-8")
    os.environ["IPYTHONDIR"] = str(folder)
