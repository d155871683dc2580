"""A kernel that is the same for everybody: the reader's own IPython profile does not reach the chapters."""

import os
from pathlib import Path


def setup(app):
    app.connect("builder-inited", use_fresh_profile)


def use_fresh_profile(app):
    folder = Path(app.outdir).parent / ".ipython"
    config = folder / "profile_default" / "ipython_kernel_config.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    # Kernels here talk to nothing but the build; 40 is logging.ERROR.  A page shows no bars of progress, which are
    # widgets in a notebook; the plain ones know that nobody waits.
    config.write_text("c.IPKernelApp.log_level = 40\n"
                      "c.IPKernelApp.exec_lines = ['import tqdm.auto', 'tqdm.auto.tqdm = tqdm.tqdm', 'del tqdm']\n",
                      encoding="utf-8")
    os.environ["IPYTHONDIR"] = str(folder)
