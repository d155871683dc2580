"""What a built page must not have, as functions from a page in a browser to a list of problems."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
THEMED = "theme => [undefined, theme].includes(document.documentElement.dataset.theme)"
NARROW = {"width": 320, "height": 568}
KEYS = ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft", "Enter", "Space")

_BAD_FORMULAS = """() => [...document.querySelectorAll('.math .formula-error, math merror, math:empty')]
    .map(node => node.closest('.math, math').textContent.slice(0, 60) || 'an empty one')"""
_FORMULAS_LEFT = """() => [...document.querySelectorAll('.math')]
    .filter(node => !node.querySelector('math, .formula-error')).map(node => node.textContent.slice(0, 60))"""
_PICTURES = """() => [...document.querySelectorAll('img')]
    .map(node => [node.getAttribute('alt'), (node.getAttribute('src') || '').slice(0, 80)])"""
_LOST_PICTURES = """() => [...document.querySelectorAll('img')]
    .filter(node => node.complete && node.naturalWidth === 0 && node.checkVisibility())
    .map(node => node.getAttribute('src').slice(0, 80))"""
_TABLES_OF_VALUES = """() => [...document.querySelectorAll('.measured')]
    .map(node => [node.dataset.notebook, node.dataset.name, node.dataset.value, node.textContent])"""
# The second frame after a change of the window: figures that measure their room have drawn themselves anew.
_WIDTH = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
    () => done(document.documentElement.scrollWidth))))"""
_FOCUSABLE = "button:visible, input:visible, select:visible, [tabindex='0']:visible"
_STATE = """node => node.innerHTML + [...node.querySelectorAll('input, select')].map(i => i.value + i.checked)"""


class Visit:
    """One page opened in a browser, with what went wrong on the way there.

    Requests to other hosts are recorded and refused.
    """

    def __init__(self, page, address: str):
        self.page, self.problems = page, []
        self._origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
        page.on("console", lambda message: self._add("console error", message.text, message.type == "error"))
        page.on("pageerror", lambda error: self._add("page error", error))
        page.on("requestfailed", lambda request: self._add("request failed", request.url, self._is_own(request.url)))
        page.on("response", lambda response: self._add("missing file", response.url, response.status >= 400))
        page.route(lambda url: not self._is_own(url), self._refuse)
        page.goto(address, wait_until="load")

    def _is_own(self, url: str) -> bool:
        return url.startswith((f"{self._origin}/", "data:", "blob:", "about:"))

    def _refuse(self, route) -> None:
        self.problems.append(f"request to another host: {route.request.url}")
        route.fulfill(status=200, body="")

    def _add(self, kind: str, what: object, applies: bool = True) -> None:
        if applies:
            self.problems.append(f"{kind}: {what}")


def unfold(page) -> None:
    """Open every folded answer, table and cell of a page."""
    page.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true })")


def page_problems(visit: Visit) -> list[str]:
    """Collect everything that is wrong with a page, apart from its links and figures."""
    page = visit.page
    problems = [f"formula not read: {text}" for text in page.evaluate(_BAD_FORMULAS)]
    problems += [f"formula not drawn: {text}" for text in page.evaluate(_FORMULAS_LEFT)]
    problems += [f"alt text {alt!r} is not a description: {source}"
                 for alt, source in page.evaluate(_PICTURES) if not describes(alt)]
    problems += [f"picture does not load: {source}" for source in page.evaluate(_LOST_PICTURES)]
    for size in (PHONE, NARROW):
        page.set_viewport_size(size)
        width = page.evaluate(_WIDTH)
        if width > size["width"]:
            problems.append(f"wider than a phone: {width} of {size['width']} pixels")
    page.set_viewport_size(DESK)
    return visit.problems + problems


def describes(alt: str | None) -> bool:
    """Whether an alt text has at least two words and is no file name or hash."""
    words = re.findall(r"[^\W\d_]{2,}", alt or "")
    return len(words) >= 2 and not re.search(r"[0-9a-f]{16}|\.(png|svg|jpe?g|gif)$", alt)


def figure_problems(page) -> list[str]:
    """Try the keyboard on every interactive figure: each needs a control that changes it."""
    problems = []
    for number, figure in enumerate(page.locator(".caracal-figure").all(), start=1):
        controls = figure.locator(_FOCUSABLE).all()
        if not controls:
            problems.append(f"figure {number} has nothing to put the keyboard's focus on")
        elif not any(_reacts(page, figure, control) for control in controls):
            problems.append(f"figure {number} does not react to the keyboard")
    return problems


def _reacts(page, figure, control) -> bool:
    control.focus()
    page.wait_for_timeout(100)
    before = figure.evaluate(_STATE)
    for key in KEYS:
        page.keyboard.press(key)
        for _ in range(10):
            if figure.evaluate(_STATE) != before:
                return True
            page.wait_for_timeout(15)
    return False


def measured_numbers(page) -> list[tuple[str, str, str, str]]:
    """Return (notebook, name, number, text shown) for each measured number of a page."""
    return [tuple(entry) for entry in page.evaluate(_TABLES_OF_VALUES)]


def shown_number(text: str) -> str:
    """Read a number back from the way a page shows it: 3.1 × 10−6 is 3.1e-6."""
    mantissa, _, exponent = text.replace("−", "-").partition(" × 10")
    return f"{mantissa}e{exponent}" if exponent else mantissa


class _Anchors(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links = {"", "top"}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(value for key in ("id", "name") if (value := attributes.get(key)))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])


def link_problems(pages: dict[str, str], exists: Callable[[str], bool]) -> list[str]:
    """Follow every link inside the site.

    `pages` holds the HTML by path; `exists` says whether some other file, such as a download, is there.
    """
    anchors = {path: _Anchors(text) for path, text in pages.items()}
    problems = []
    for path, page in anchors.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = _resolve(path, unquote(parts.path)) if parts.path else path
            if target not in anchors:
                if not exists(target):
                    problems.append(f"{path}: link to {link}, which does not exist")
            elif unquote(parts.fragment) not in anchors[target].ids:
                problems.append(f"{path}: link to {link}, where nothing has that id")
    return problems


def _resolve(path: str, link: str) -> str:
    parts: list[str] = []
    for part in [*Path(path).parent.parts, *link.split("/")]:
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
