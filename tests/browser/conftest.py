"""A browser that is installed, the pages that were built, and a server on this machine that serves them."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
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
def page(browser):
    """An empty page in a profile of its own."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()


@pytest.fixture
def open_figure(browser):
    """A function that opens a page with a figure on a phone; the page must load nothing and report no error."""
    contexts, problems, requests = [], [], []

    def start(address: str, *, scripts: bool = True, **options):
        options = {"viewport": {"width": 360, "height": 900}, "reduced_motion": "reduce"} | options
        contexts.append(browser.new_context(java_script_enabled=scripts, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        if scripts:
            page.wait_for_selector(".caracal-figure[data-ready]")
        return page

    yield start
    for context in contexts:
        context.close()
    assert problems == [] and [url for url in requests if not url.startswith(("file:", "data:"))] == []


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
