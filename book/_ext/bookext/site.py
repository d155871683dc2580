"""What the site needs beside its pages: the repository, the downloads, and pages at old addresses.

Two variables of the environment say where a copy is published, and .github/workflows/pages.yml sets both:
BOOK_REPOSITORY, owner/name on GitHub, from which anybody can install; and BOOK_URL, the address of the pages, where it
is not the one that GitHub gives to that repository.  Without them the book is at home, in a checkout.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nbformat

COLAB_BRANCH = "colab"


def setup(app):
    app.add_config_value("moved_pages", {}, "")  # old page to new one
    app.connect("config-inited", name_the_repository)
    app.connect("html-collect-pages", moved)
    app.connect("build-finished", stamp_downloads)


def repository() -> str:
    """Return owner/name of the repository that the book is published from; empty at home."""
    return os.environ.get("BOOK_REPOSITORY", "")


def address() -> str:
    """Return where the pages are published, with a slash at the end; empty at home.

    GitHub shows the repository owner.github.io at the top of that host, any other one in a folder of its name.
    """
    owner, _, name = repository().partition("/")
    host = f"{owner.lower()}.github.io"
    theirs = f"https://{host}" if name.lower() == host else f"https://{host}/{name}" if name else ""
    url = os.environ.get("BOOK_URL") or theirs
    return url and url.rstrip("/") + "/"


def name_the_repository(app, config):
    """Point the launch buttons at the repository the book is published from, or take them away at home."""
    options = config.html_theme_options
    if slug := repository():
        options |= {"repository_url": f"https://github.com/{slug}", "repository_branch": COLAB_BRANCH,
                    "use_repository_button": True}
    else:
        options.pop("repository_url", None)
        options["launch_buttons"] = {}
    config.html_baseurl = config.html_baseurl or address()
    config.html_context |= {"site": address(), "home": urlsplit(address()).path or "/"}  # for book/_templates


def source_of(app) -> str:
    """Return what pip installs the package of this build from: the commit on GitHub, or else this checkout.

    Pages that are published without a repository do not know where their reader has a checkout: around the notebook.
    """
    root = Path(app.srcdir).resolve()
    if not (slug := repository()):
        return ".." if address() else f"{root}[train]"
    commit = os.environ.get("GITHUB_SHA") or subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    return f"caracal-min[train] @ git+https://github.com/{slug}@{commit}"


def stamp_downloads(app, exception):
    """Tell the notebooks behind the pages' download buttons where their package comes from, and where the pages are.

    As they are in the repository they would install from the folder above them and link to pages beside them, and
    around a download there is neither.
    """
    sys.path.insert(0, str(Path(app.srcdir, "tools")))
    from set_source import set_site, set_source

    source, site = source_of(app), address()
    for path in Path(app.outdir, "_sources").rglob("*.ipynb"):
        notebook = set_source(nbformat.read(path, as_version=4), source)
        nbformat.write(set_site(notebook, site) if site else notebook, path)


def moved(app):
    """Yield a page for each old address, which leads to the new one."""
    for old, new in app.config.moved_pages.items():
        title = app.env.titles[new].astext()
        yield old, {"title": title, "address": app.builder.get_relative_uri(old, new)}, "moved.html"
