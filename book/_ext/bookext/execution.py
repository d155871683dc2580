"""Notebooks are executed before Sphinx reads them: those that changed, two at a time where the machine has room.

jupyter-cache finds the outputs of a notebook by its code cells alone, and would serve old ones after an edit to the
packages.  Beside the cache stands a file with a key for each notebook, over its code, all files that this is made of
(`caracal_book.rules.closure`) and the versions of what computes and draws; an output with another key is thrown away.

The spine runs from its end, where the longest training is, so that the others fit beside it.  A notebook that fails is
left to myst-nb, which runs it once more and reports what went wrong.
"""

import hashlib
import json
import os
import platform
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution

from caracal_book.rules import closure
from caracal_book.rules.cells import code_cells

VERSIONS = ("torch", "numpy", "matplotlib")
MEMORY = 3 << 30  # bytes that a kernel may take


def setup(app):
    app.connect("config-inited", place_the_cache)
    app.connect("env-before-read-docs", execute_what_changed)


def place_the_cache(app, config):
    config.nb_execution_cache_path = str(Path(app.outdir).parent / ".jupyter_cache")


def key_of(notebook: dict, root: Path) -> str:
    """Return a hash over the code of a notebook, the files that it is made of, and versions."""
    digest = hashlib.sha256("\n".join([platform.python_version(), *(version(name) for name in VERSIONS),
                                       *(cell["source"] for _, cell in code_cells(notebook))]).encode())
    for path in sorted(closure.of_notebook(notebook, root)):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def execute_what_changed(app, env, docnames):
    root = Path(app.srcdir).resolve()
    folder = Path(app.config.nb_execution_cache_path)
    cache, stored = get_cache(str(folder)), folder / "keys.json"
    keys = json.loads(stored.read_text()) if stored.is_file() else {}
    todo = {}
    for name in sorted(docnames, key=lambda name: (Path(name).stem[:2].isdigit(), name), reverse=True):
        path = Path(env.doc2path(name))
        if path.suffix != ".ipynb" or app.config.nb_execution_mode != "cache":
            continue
        notebook = nbformat.read(path, 4)
        key, record = key_of(notebook, root), None
        with suppress(KeyError):
            record = cache.match_cache_notebook(notebook)
        if record is not None and keys.get(name) != key:
            cache.remove_cache(record.pk)
        if record is None or keys.get(name) != key:
            todo[path] = notebook
        keys[name] = key
    for path, result in _executed(todo, app.config.nb_execution_timeout):
        print(f"{path.stem}: {'failed' if result.err else 'executed'} in {result.time:.0f} s", flush=True)
        if result.err is None:
            cache.cache_notebook_bundle(CacheBundleIn(result.nb, str(path), data={"execution_seconds": result.time}),
                                        check_validity=False, overwrite=True)
    folder.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(keys, indent=1))


def _executed(notebooks: dict[Path, dict], timeout: int):
    """Execute notebooks in their folders, and yield each with the result as it comes."""
    def run(path: Path):
        return path, single_nb_execution(notebooks[path], cwd=str(path.parent), timeout=timeout, allow_errors=False)

    cores = os.cpu_count() or 1
    kernels = max(1, min(2, cores, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY))
    with _threads(cores // kernels), ThreadPoolExecutor(kernels) as pool:
        for done in as_completed([pool.submit(run, path) for path in notebooks]):
            yield done.result()


@contextmanager
def _threads(number: int):
    """Let the kernels that start in this context compute with so many threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = before or str(max(1, number))
    yield
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
