"""Draw the stills of the figures that the built pages show, or executed notebooks, as a browser draws them.

    make book && python tools/draw_stills.py && make book       those of the pages
    python tools/draw_stills.py NOTEBOOK ...                    those of executed notebooks, beside the ones there are

A figure's still is `viz/stills/<module>-<hash of its data>.svg`; the first way deletes those that no page needs.  Draw
them anew when a script of a figure, a style or what a page shows has changed: `tests/browser/test_stills.py` says so.
"""

import json
import re
import sys
from html import unescape
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from caracal_book.viz import Figure

ROOT = Path(__file__).resolve().parents[1]
STILLS = ROOT / "book" / "caracal_book" / "viz" / "stills"
sys.path.insert(0, str(ROOT / "tests" / "browser"))
_SCRIPT, _STYLE = (Path(__file__).with_name(f"still.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
_FIGURE = re.compile(r'<img class="caracal-still"[^>]*alt="([^"]*)"[^>]* data-key="(\w+)-(\w+)">(.*?)'
                     r"\n  const state = (\{.*?\}), heard = ", re.DOTALL)
_PART = re.compile(r"^// part ([\w/]+)$|caracalParts(?: \?\?= \{\}\))?\['([\w/]+)'\]", re.MULTILINE)
_PAGE = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8"><style>{css}</style>{body}</html>'
# A recording is drawn at its end: the state that shows it, from the model.
_END = {"continuation": lambda model: {"n": len(model["steps"]) - 1},
        "remember": lambda model: {"n": len(model["runs"][0]["pieces"])},
        "training_run": lambda model: {"sample": len(model["samples"]) - 1}}


def figures_in(page: str) -> dict[str, Figure]:
    """Return the figures of a page's HTML that have a key, by it."""
    found: dict[str, Figure] = {}
    parts: dict[str, list[str]] = {}  # of modules: a page holds each once
    for alt, module, digest, program, model in _FIGURE.findall(page):
        names = dict.fromkeys(name for pair in _PART.findall(program) for name in pair if name)
        parts.setdefault(module, [name for name in names if "/" in name])
        data = json.loads(model)
        data |= _END[module](data) if module in _END else {}
        found[f"{module}-{digest}"] = Figure(module, data, None, unescape(alt), parts=parts[module])
    return found


def outputs_of(notebook: Path) -> str:
    """Return the HTML that an executed notebook shows."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(output.get("data", {}).get("text/html", "")) for cell in cells
                     for output in cell.get("outputs", ()))


def draw(browser: Browser, figure: Figure) -> str:
    """Return the first frame of a figure as SVG."""
    page = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="light", reduced_motion="reduce")
    page.set_content(_PAGE.format(css=_STYLE, body=figure.to_html()))
    page.wait_for_selector(".caracal-figure[data-ready]")
    page.wait_for_timeout(100)  # until it has heard its width
    svg = page.locator(".caracal-live").evaluate(_SCRIPT)
    page.close()
    return svg


def main(paths: list[str]) -> None:
    from conftest import FLAGS, installed_browser

    pages = [outputs_of(Path(path)) for path in paths] if paths else [
        path.read_text(encoding="utf-8") for path in (ROOT / "_build" / "html").rglob("*.html")]
    figures = {key: figure for page in pages for key, figure in figures_in(page).items()}
    STILLS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed_browser(), args=FLAGS)
        for key, figure in sorted(figures.items()):
            (STILLS / f"{key}.svg").write_text(draw(browser, figure), encoding="utf-8", newline="\n")
        browser.close()
    for path in STILLS.glob("*.svg"):
        if not paths and path.stem not in figures:
            path.unlink()
    print(f"{len(figures)} stills drawn, {sum(path.stat().st_size for path in STILLS.iterdir()) / 1e3:.0f} kB in all")


if __name__ == "__main__":
    main(sys.argv[1:])
