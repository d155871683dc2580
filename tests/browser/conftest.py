"""A browser that is installed, pages with figures, the pages that were built, and a server that serves them."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
from figure_pages import write_page
from page_checks import DESK, THEMED

from caracal_book.viz import Figure, engine

# The first opens a page in a fifth of the time: others begin a window of their own for it.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
            "chrome")
MAC_BROWSER = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]


def installed_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome; CHROME_PATH names one that is not on the path."""
    named = os.environ.get("CHROME_PATH")
    if named:
        return named
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or (MAC_BROWSER if Path(MAC_BROWSER).exists() else None)


@pytest.fixture(scope="module")
def browser(report_missing):
    """Headless Chromium, driven by Playwright, which allows one driver at a time in a process."""
    path = installed_browser()
    if path is None:
        report_missing("no Chromium or Chrome found; install one, or name it in CHROME_PATH")
    if not Path(path).exists():
        pytest.fail(f"CHROME_PATH is {path}, which does not exist")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_figure(browser):
    """A function that opens a page with figures on a phone, where they take the place of their stills.

    The page must load nothing and report no error.
    """
    contexts, problems, requests = [], [], []

    def start(address: str, *, scripts: bool = True, prepare: str = "", errors: bool = False, **options):
        options = {"viewport": {"width": 360, "height": 900}, "reduced_motion": "reduce"} | options
        contexts.append(browser.new_context(java_script_enabled=scripts, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        if not errors:
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.add_init_script(prepare)
        page.goto(address)
        if scripts:
            page.wait_for_selector(".caracal-figure[data-ready]")
            assert not page.locator(".caracal-still:visible").count()
        return page

    yield start
    for context in contexts:
        context.close()
    assert problems == [] and [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture
def show(open_figure, tmp_path):
    """A function that writes figures to a page and opens it."""

    def start(*figures, theme: str = "", **options):
        body = "".join(figure.to_html() for figure in figures)
        return open_figure(write_page(tmp_path, body, theme), **options)

    return start


@pytest.fixture(scope="module")
def address(request, tmp_path_factory) -> str:
    """The address of a page with the figure that a module of tests names FIGURE."""
    return write_page(tmp_path_factory.mktemp("figure"), request.module.FIGURE.to_html())


@pytest.fixture
def page(request, browser):
    """That page, on a phone; an empty page on a desk for a module without such a FIGURE."""
    if isinstance(getattr(request.module, "FIGURE", None), Figure):
        yield request.getfixturevalue("open_figure")(request.getfixturevalue("address"))
    else:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        yield context.new_page()
        context.close()


@pytest.fixture(scope="module")
def weights(request, tmp_path_factory):
    """A folder with a page that has a module's FIGURE, and beside it the weights of its MODEL, or of SHIPPED."""
    folder = tmp_path_factory.mktemp("live")
    engine.write(getattr(request.module, "SHIPPED", request.module.MODEL), folder / "weights")
    write_page(folder, request.module.FIGURE.to_html())
    return folder


@pytest.fixture
def visit(open_figure):
    """A function that opens the page of a folder that has weights beside it."""
    return lambda folder, prepare="", errors=False: open_figure(
        (folder / "figure.html").as_uri(), prepare=prepare, errors=errors, viewport={"width": 390, "height": 780})


@pytest.fixture(scope="session")
def book(root, report_missing) -> Path:
    """The folder of the built pages."""
    folder = root / "_build" / "html"
    if not (folder / "index.html").exists():
        report_missing("the book is not built: run make book")
    return folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def serve():
    """A function that serves a folder and returns its address."""
    servers = []

    def start(folder: Path) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()


@pytest.fixture(scope="session")
def site(book, serve) -> str:
    """The address at which the book is served."""
    return serve(book)


@pytest.fixture
def look(browser):
    """A function that opens a page, empty without an address, at a width and in a theme."""
    contexts = []

    def start(address: str | None = None, size: dict[str, int] = DESK, theme: str = "light", motion: str = "reduce"):
        contexts.append(browser.new_context(viewport=size, color_scheme=theme, reduced_motion=motion))
        page = contexts[-1].new_page()
        page.set_default_timeout(120_000)
        if address is not None:
            page.goto(address)
            page.wait_for_function(THEMED, arg=theme)
        return page

    yield start
    for context in contexts:
        context.close()
