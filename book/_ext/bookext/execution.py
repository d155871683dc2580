"""Notebooks are executed before Sphinx reads them: those that changed, two at a time.

jupyter-cache finds the outputs of a notebook by its code cells alone, and would serve old ones after an edit to the
packages.  So each record has a key, over the files that the notebook is made of (`caracal_book.rules.ingredients`) and
the versions of what computes and draws; one with another key is not used.

The kernels are the same for everybody: the reader's own IPython profile does not reach the chapters.  No cell has a
time limit, since machines differ.  A notebook that fails is reported at once, the others are executed and
kept, and the build ends; the next build goes on with what is left.
"""

import hashlib
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from sphinx.errors import ExtensionError

from caracal_book.rules.ingredients import files_of

VERSIONS = ("torch", "numpy", "matplotlib")


def setup(app):
    app.connect("env-before-read-docs", execute_what_changed)


def key_of(notebook: dict, root: Path) -> str:
    """Return a hash over the files that a notebook is made of, and versions."""
    digest = hashlib.sha256("\n".join([platform.python_version(), *map(version, VERSIONS)]).encode())
    for path in files_of(notebook, root):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def execute_what_changed(app, env, docnames):
    cache = get_cache(env.mystnb_config.execution_cache_path)
    environment = ({"OMP_NUM_THREADS": str(max(1, os.cpu_count() // 2))} | os.environ
                   | {"IPYTHONDIR": str(fresh_profile(Path(app.outdir).parent / ".ipython"))})
    running, failed = {}, []
    with ThreadPoolExecutor(2) as pool:
        for path in sorted(map(Path, map(env.doc2path, docnames)), reverse=True):  # long trainings stand near the end
            if path.suffix == ".ipynb" and app.config.nb_execution_mode == "cache":
                notebook = nbformat.read(path, 4)
                key = key_of(notebook, Path(app.srcdir))
                if key_in(cache, notebook) != key:
                    job = pool.submit(run, notebook, path, environment)
                    running[job] = CacheBundleIn(notebook, str(path), data={"key": key})
        for done in as_completed(running):
            name = Path(running[done].uri).stem
            if error := done.exception():
                print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
                failed.append(name)
            else:
                print(f"{name}: executed in {done.result():.0f} s", flush=True)
                cache.cache_notebook_bundle(running[done], check_validity=False, overwrite=True)
    if failed:
        raise ExtensionError(f"{', '.join(failed)} failed, see above; what was executed is kept, and the next build "
                             "goes on with the rest")


def key_in(cache, notebook: dict) -> str | None:
    """Return the key under which the cache has outputs of a notebook."""
    try:
        return cache.match_cache_notebook(notebook).data.get("key")
    except KeyError:
        return None


def fresh_profile(folder: Path) -> Path:
    """Make a profile for kernels that talk to nothing but the build."""
    config = folder / "profile_default" / "ipython_kernel_config.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    # 40 is logging.ERROR.  A page shows no bars of progress, which are widgets in a notebook; the plain ones know that
    # nobody waits.
    config.write_text("c.IPKernelApp.log_level = 40\n"
                      "c.IPKernelApp.exec_lines = ['import tqdm.auto', 'tqdm.auto.tqdm = tqdm.tqdm', 'del tqdm']\n",
                      encoding="utf-8")
    return folder


def run(notebook: dict, path: Path, environment: dict) -> float:
    """Execute a notebook in its folder, and return how many seconds it took."""
    began = time.monotonic()
    # What a line printed may arrive in two pieces; myst-nb would end a line after each.
    NotebookClient(notebook, timeout=None, record_timing=False, coalesce_streams=True,
                   resources={"metadata": {"path": str(path.parent)}}).execute(env=environment)
    notebook.metadata.pop("widgets", None)  # a page has no kernel, and shows the HTML beside a widget
    return time.monotonic() - began
