"""Notebooks are executed before Sphinx reads them: those that changed, two at a time where the machine has room.

jupyter-cache finds the outputs of a notebook by its code cells alone, and would serve old ones after an edit to the
packages.  Beside the cache stands a file with a key for each notebook, over its code, the files that it is made of
(`caracal_book.rules.ingredients`) and the versions of what computes and draws; one with another key is thrown away.

The spine runs from its end, where the longest training is, so that the others fit beside it.  No cell has a time limit,
since machines differ; a line a minute says which cells are running.  A notebook that fails is reported at once, the
others are executed and kept, and the build ends; the next build goes on with what is left.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from sphinx.errors import ExtensionError

from caracal_book.rules.cells import code_cells
from caracal_book.rules.ingredients import files_of

VERSIONS = ("torch", "numpy", "matplotlib")
MEMORY = 3 << 30  # bytes that a kernel may take
PULSE = 60  # seconds between two lines that say what is running


def setup(app):
    app.connect("config-inited", place_the_cache)
    app.connect("env-before-read-docs", execute_what_changed)


def place_the_cache(app, config):
    config.nb_execution_cache_path = str(Path(app.outdir).parent / ".jupyter_cache")


def key_of(notebook: dict, root: Path) -> str:
    """Return a hash over the code of a notebook, the files that it is made of, and versions."""
    digest = hashlib.sha256("\n".join([platform.python_version(), *(version(name) for name in VERSIONS),
                                       *(cell["source"] for _, cell in code_cells(notebook))]).encode())
    for path in files_of(notebook, root):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def execute_what_changed(app, env, docnames):
    root = Path(app.srcdir).resolve()
    folder = Path(app.config.nb_execution_cache_path)
    cache, stored = get_cache(str(folder)), folder / "keys.json"
    keys = json.loads(stored.read_text()) if stored.is_file() else {}
    todo, names = [], {}
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
            todo.append(Execution(path, notebook))
            names[path] = name, key
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for execution in executed(todo):
        if execution.error:
            failed.append(execution.path.stem)
            print(execution.report(root), flush=True)
            continue
        print(f"{execution.path.stem}: executed in {execution.seconds:.0f} s", flush=True)
        cache.cache_notebook_bundle(CacheBundleIn(execution.notebook, str(execution.path),
                                                  data={"execution_seconds": execution.seconds}),
                                    check_validity=False, overwrite=True)
        # Written each time, so that a build that is stopped keeps what it has done.
        name, key = names[execution.path]
        stored.write_text(json.dumps(keys | {name: key}, indent=1))
        keys[name] = key
    if failed:
        raise ExtensionError(f"{', '.join(failed)} failed, see above; what was executed is kept, and the next build "
                             "goes on with the rest")


class Execution:
    """One notebook, executed in its folder: where it is, what failed, how long it took."""

    def __init__(self, path: Path, notebook: dict):
        self.path, self.notebook = path, notebook
        self.cell, self.began, self.seconds, self.error = 0, None, 0.0, ""

    def run(self, threads: int) -> "Execution":
        """Execute all cells, by a kernel that computes with some threads."""
        def starts(cell, cell_index):
            self.cell = cell_index

        self.began = time.monotonic()
        client = NotebookClient(self.notebook, timeout=None, record_timing=False, on_cell_start=starts,
                                resources={"metadata": {"path": str(self.path.parent)}})
        try:
            client.execute(env={"OMP_NUM_THREADS": str(threads)} | os.environ)
        except CellExecutionError as error:
            self.error = f"{error.ename}: {error.evalue}".strip().splitlines()[-1]
        except DeadKernelError:
            self.error = "the kernel died, perhaps for lack of memory"
        self.seconds = time.monotonic() - self.began
        return self

    def place(self) -> str:
        """Return which cell is running, and its first line."""
        cells = self.notebook["cells"]
        lines = cells[self.cell]["source"].strip().splitlines() or [""]
        return f"cell {self.cell + 1} of {len(cells)} ({lines[0].strip()[:60]})"

    def report(self, root: Path) -> str:
        """Return what failed, and how to see it alone."""
        path = self.path.relative_to(root).as_posix()
        return (f"{self.path.stem}: FAILED after {self.seconds:.0f} s in {self.place()}: {self.error}\n"
                f"    alone, with the whole traceback: .venv/bin/jupyter execute {path}")


def executed(todo: list[Execution]) -> Iterator[Execution]:
    """Execute notebooks, two at a time where the machine has room, and yield each when it ends."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else MEMORY
    kernels = max(1, min(2, cores, memory // MEMORY))
    with ThreadPoolExecutor(kernels) as pool:
        running = {pool.submit(execution.run, max(1, cores // kernels)) for execution in todo}
        while running:
            done, running = wait(running, PULSE, FIRST_COMPLETED)
            yield from (future.result() for future in done)
            if not done:
                now = [e for e in todo if e.began and not e.seconds]
                print("; ".join(f"{e.path.stem}: {time.monotonic() - e.began:.0f} s, {e.place()}" for e in now),
                      flush=True)
