"""What the site needs beside its pages: the repository, the downloads, a 404 page, and pages at old addresses.

Two variables of the environment say where a copy is published, and .github/workflows/pages.yml sets both:
BOOK_REPOSITORY, owner/name on GitHub, from which anybody can install; and BOOK_URL, the address of the pages, where it
is not the one that GitHub gives to that repository.  Without them the book is at home, in a checkout.
"""

import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from sphinx.util import logging

logger = logging.getLogger(__name__)

COLAB_BRANCH = "colab"
MOVED = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="refresh" content="0; url={address}"><meta name="robots" content="noindex"></head>
<body><p>This page is now <a href="{address}">{title}</a>.</p></body></html>
"""


def setup(app):
    app.connect("config-inited", name_the_repository)
    app.connect("build-finished", stamp_downloads)
    app.connect("build-finished", write_not_found)
    app.add_config_value("moved_pages", {}, "")  # old page to new one
    app.connect("build-finished", write_moved)


def repository() -> str:
    """Return owner/name of the repository that the book is published from; empty at home."""
    slug = os.environ.get("BOOK_REPOSITORY", "")
    if slug and not re.fullmatch(r"[\w.-]+/[\w.-]+", slug):
        logger.warning("BOOK_REPOSITORY is '%s'; give owner/name, or leave it unset", slug)
        return ""
    return slug


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
        options["repository_url"] = f"https://github.com/{slug}"
        options["repository_branch"] = COLAB_BRANCH
        options["use_repository_button"] = True
    else:
        options.pop("repository_url", None)
        options["launch_buttons"] = {}
    config.html_baseurl = config.html_baseurl or address()


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
    if exception is not None or app.builder.format != "html":
        return
    sys.path.insert(0, str(Path(app.srcdir, "tools")))
    from set_source import set_site, set_source

    source, site = source_of(app), address()
    for path in Path(app.outdir, "_sources").rglob("*.ipynb"):
        notebook = set_source(nbformat.read(path, as_version=4), source)
        nbformat.write(set_site(notebook, site) if site else notebook, path)


def write_not_found(app, exception):
    """Write 404.html, which the host of the site shows in place of any missing page, so that it needs no other file."""
    if exception is None and app.builder.format == "html":
        page = Path(app.srcdir, "book/_templates/404.html").read_text(encoding="utf-8")
        home = urlsplit(address()).path or "/"
        Path(app.outdir, "404.html").write_text(page.replace("{home}", home), encoding="utf-8")


def write_moved(app, exception):
    """Write a page at each old address that leads to the new one."""
    if exception is not None or app.builder.format != "html":
        return
    for old, new in app.config.moved_pages.items():
        if new not in app.env.titles:
            logger.warning("moved_pages sends '%s' to '%s', and there is no such page", old, new)
            continue
        page = MOVED.format(title=escape(app.env.titles[new].astext()), address=app.builder.get_relative_uri(old, new))
        Path(app.builder.get_outfilename(old)).write_text(page, encoding="utf-8")
