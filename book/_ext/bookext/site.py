"""What the site needs that _config.yml cannot know: the cache's key, the repository, the downloads, a 404 page."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
from sphinx.util import logging

logger = logging.getLogger(__name__)

PACKAGE = "caracal_min"
CACHED_WITH = ("torch", "numpy", "matplotlib")
COLAB_BRANCH = "colab"


def setup(app):
    app.connect("config-inited", key_the_cache)
    app.connect("config-inited", name_the_repository)
    app.connect("build-finished", stamp_downloads)
    app.connect("build-finished", write_not_found)


def package_hash(folder: Path, versions: tuple[str, ...] = ()) -> str:
    """Hash every file of a package, with its path, and the versions given."""
    digest = hashlib.sha256("\n".join(versions).encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def key_the_cache(app, config):
    """Keep executed notebooks in a folder named by the package's hash, and remove the folders of other hashes.

    jupyter-cache looks at the code cells alone and would serve old outputs after an edit to the package.
    """
    versions = (platform.python_version(), *(f"{name} {version(name)}" for name in CACHED_WITH))
    key = package_hash(Path(app.srcdir, PACKAGE), versions)
    caches = Path(app.outdir).parent / ".jupyter_cache"
    config.nb_execution_cache_path = str(caches / key)
    for folder in caches.glob("[0-9a-f]" * len(key)):
        if folder.name != key:
            shutil.rmtree(folder, ignore_errors=True)


def name_the_repository(app, config):
    """Point the launch buttons at the repository the build runs for, or take them away where none is known."""
    slug = os.environ.get("GITHUB_REPOSITORY", "")
    options = config.html_theme_options
    if re.fullmatch(r"[\w.-]+/[\w.-]+", slug):
        options["repository_url"] = f"https://github.com/{slug}"
        options["repository_branch"] = COLAB_BRANCH
        options["use_repository_button"] = True
        owner, _, name = slug.partition("/")
        config.html_baseurl = config.html_baseurl or f"https://{owner.lower()}.github.io/{name}/"
    else:
        if slug:
            logger.warning("GITHUB_REPOSITORY is '%s'; give owner/name, or leave it unset", slug)
        options.pop("repository_url", None)
        options["launch_buttons"] = {}


def source_of(app) -> str:
    """Return what pip installs the package of this build from: the commit on GitHub, or else this checkout."""
    slug, root = os.environ.get("GITHUB_REPOSITORY", ""), Path(app.srcdir).resolve()
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", slug):
        return f"{root}[train]"
    commit = os.environ.get("GITHUB_SHA") or subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    return f"caracal-min[train] @ git+https://github.com/{slug}@{commit}"


def stamp_downloads(app, exception):
    """Tell the notebooks behind the pages' download buttons where their package comes from.

    As they are in the repository they would install from the folder above them, and around a download there is none.
    """
    if exception is not None or app.builder.format != "html":
        return
    sys.path.insert(0, str(Path(app.srcdir, "tools")))
    from set_source import set_source

    source = source_of(app)
    for path in Path(app.outdir, "_sources").rglob("*.ipynb"):
        nbformat.write(set_source(nbformat.read(path, as_version=4), source), path)


def write_not_found(app, exception):
    """Write 404.html, which the host of the site shows in place of any missing page, so that it needs no other file."""
    if exception is None and app.builder.format == "html":
        slug = os.environ.get("GITHUB_REPOSITORY", "")
        home = f"/{slug.split('/')[1]}/" if "/" in slug else "/"
        Path(app.outdir, "404.html").write_text(_NOT_FOUND.format(home=home), encoding="utf-8")


_NOT_FOUND = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>No such page: Caracal from Scratch</title>
<style>:root {{ color-scheme: light dark; }} body {{ max-width: 36rem; margin: 15vh auto; padding: 0 1.5rem;
font: 1.1rem/1.6 system-ui, sans-serif; background: #fff; color: #222; }} a {{ color: #0064A0; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #171B21; color: #E8E8E8; }} a {{ color: #3D9FE8; }} }}
</style></head>
<body><main><h1>There is no such page</h1>
<p>The page may have been renamed, or the chapter is not written yet. What there is begins at
<a href="{home}">Caracal from Scratch</a>.</p></main></body></html>
"""
