"""A figure that moves in a static page, in JupyterLab, in Colab and as an anywidget, from one JS module.

The module is a file beside this one that exports `render({model, el})`, anywidget's contract: it reads
its data with `model.get(name)` and draws into the element `el`, with the functions of `drawing.js`.
`Figure` inlines both files, the data, the styles and a still image into one piece of HTML that needs no
kernel, no network and no other file.

A still is the first frame as a browser draws it: `tools/draw_stills.py` writes those of the book's pages into the
folder `stills`, under the name of the module and a hash of the data.  A figure of other data has no still, and where
no script runs it shows its words.
"""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any
from urllib.parse import quote

from .style import dark, palette

__all__ = ["Figure"]

_SHARED = "drawing"  # the JavaScript that stands in front of every module and is no figure itself

_STILLS = resources.files(__package__) / "stills"
_PLAIN = " !$'()*+,-./:;=?@_~"  # stands for itself in the address of a still

_FRAME = """\
<div class="caracal-figure" id="{id}">
{css}
{still}
<div class="caracal-live" role="group" aria-label="{name}" hidden></div>
<details class="caracal-words"{fold}><summary>This figure in words</summary><p>{alt}</p></details>
<script type="module">
{source}
for (const host of document.querySelectorAll("#{id}:not([data-ready])")) {{
  const state = {model}, heard = {{}};
  const model = {{
    get: (key) => state[key],
    set: (key, value) => {{ state[key] = value; (heard["change:" + key] ?? []).forEach((f) => f()); }},
    on: (event, f) => {{ (heard[event] ??= []).push(f); }},
    save_changes: () => {{}},
  }};
  const live = host.querySelector(".caracal-live");
  live.hidden = false;
  try {{
    render({{ model, el: live }});
    host.querySelector(".caracal-still").hidden = true;
    host.querySelector(".caracal-words").open = false;
    host.dataset.ready = "true";
  }} catch (error) {{
    live.hidden = true;
    console.error(error);
  }}
}}
</script>
</div>
"""


class Figure:
    """An interactive figure with a still image for readers, and programs, that run no scripts.

    Args:
        module: name of the JavaScript file in this package, without `.js`.
        model: the data that the module reads, keys to anything JSON can hold.
        still: the first frame, as SVG text; None for the one in the folder `stills`, if there is one.
        alt: what the figure shows, in words; also in a fold below it, for those who do not use the figure.
        state: the keys of the model that change as the reader drags, slides and presses keys.
        parts: JavaScript of folders in this package, such as "engine/loader", that the module uses.
        computed: the keys of the model whose numbers follow from the others, by arithmetic that may differ in the last
            digit between machines: these numbers do not choose the still.

    Raises:
        ValueError: no such module; no alt text; a still that is no SVG; a state that the model lacks.
        TypeError: the model holds something that JSON cannot.

    A notebook shows the figure when it is the last value of a cell.  The same arguments give the same HTML.
    """

    def __init__(self, module: str, model: Mapping[str, Any], still: str | None, alt: str,
                 state: Sequence[str] = (), parts: Sequence[str] = (), computed: Sequence[str] = ()):
        self.module = module
        self.model = dict(model)
        self.alt = alt
        self.state = tuple(state)
        self._source = _module_source(module, parts)
        self._css = _css(module, parts)
        self._key = f"{module}-{_hash(self.model, computed)}" if still is None else ""
        self._still = still_of(self._key) if still is None else _data_uri(still)
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError(f"alt is {alt!r}; say in words what the figure shows")
        if missing_keys := set(self.state) - set(self.model):
            raise ValueError(f"state names {sorted(missing_keys)}; the model has {', '.join(self.model)}")
        self._model_json = _script_json(self.model)

    @property
    def id(self) -> str:
        """The host element's id: the module's name and a hash of everything the figure is made of."""
        parts = (self._source, *self._css.values(), self._model_json, self._still, self.alt)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"caracal-{self.module}-{digest[:12]}"

    def to_html(self) -> str:
        """Return the figure as one self-contained piece of HTML."""
        name = f"Figure: {self.module.replace('_', ' ')}"
        css = "\n".join(f'<style data-of="{of}">\n{text}</style>' for of, text in self._css.items())
        alt = html.escape(self.alt)
        return _FRAME.format(id=self.id, css=css, still=still_image(self._still, alt, self._key), alt=alt, name=name,
                             fold="" if self._still else " open", source=self._source, model=self._model_json)

    def widget(self) -> Any:
        """Return the same figure as an anywidget, in step with Python both ways: one trait for each key of `model`.

        The traits that `state` names change when the reader drags, slides or presses a key, which `observe` hears,
        and the figure moves when one of them is set.  A value that the figure cannot show comes back as the nearest
        that it can.  The other traits are the data that the figure was made from, and read-only.  A value that is set
        anew, `w.v = [...]`, is seen; one that is changed in place is not.

        Raises:
            ImportError: anywidget is not installed; the message says how to install it.

        Example, in a cell of a notebook::

            w = viz.clock(v, g).widget()
            w.observe(lambda change: print(change.new), names="n")
            w
        """
        try:
            import anywidget
            import traitlets
        except ImportError:
            raise ImportError("Figure.widget() needs anywidget: pip install anywidget") from None
        traits = {key: traitlets.Any(value, read_only=key not in self.state).tag(sync=True)
                  for key, value in self.model.items()}
        members = {"_esm": self._source, "_css": "\n".join(self._css.values()), **traits}
        return type("FigureWidget", (anywidget.AnyWidget,), members)()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Figure({self.module!r}): {self.alt}"


def _module_source(module: str, parts: Sequence[str] = ()) -> str:
    """Return drawing.js, the parts, and the module: one script, whether a page or anywidget runs it.

    A line before each of them says its name, for a page that shares them among its figures.
    """
    folder = resources.files(__package__)
    files = {path.name.removesuffix(".js"): path for path in folder.iterdir() if path.name.endswith(".js")}
    names = sorted(set(files) - {_SHARED})
    if module not in names:
        raise ValueError(f"no figure module {module!r}; there are: {', '.join(names)}")
    sources = {name: (folder / f"{name}.js").read_text(encoding="utf-8") for name in (_SHARED, *parts, module)}
    for name, source in sources.items():
        if "</script" in source.lower():
            raise ValueError(f"{name}.js holds '</script', which would end the script; write '<\\/script'")
    return "\n".join(f"// part {name}\n{source}" for name, source in sources.items())


def _css(module: str, parts: Sequence[str]) -> dict[str, str]:
    """Return the styles of a figure by name, with the colours of `style` in the places that figure.css names."""
    found = {name: resources.files(__package__) / f"{name}.css" for name in ("figure", *parts, module)}
    css = {name: file.read_text(encoding="utf-8") for name, file in found.items() if file.is_file()}
    shared = css["figure"].replace("/* palette */", palette.css()).replace("/* dark palette */", dark.css())
    return css | {"figure": shared}


def _hash(model: Mapping[str, Any], computed: Sequence[str]) -> str:
    """Name data by a hash: numbers to three digits, and of the keys that were computed only the words."""
    def plain(value: Any, numbers: bool) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(one, numbers) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [plain(one, numbers) for one in value]
        return value if isinstance(value, str) else float(f"{value:.3g}") if numbers and value is not None else None

    kept = {key: plain(value, key not in computed) for key, value in model.items()}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def still_of(key: str) -> str:
    """Return the address of the still that the folder `stills` has under a key, or nothing."""
    file = _STILLS / f"{key}.svg"
    return _data_uri(file.read_text(encoding="utf-8")) if file.is_file() else ""


def still_image(address: str, alt: str, key: str) -> str:
    """Return the image of a still, which is hidden where there is none; `alt` is HTML."""
    shown = f'src="{address}" alt="{alt}" style="max-width: 100%; height: auto;"' if address else f'alt="{alt}" hidden'
    return f'<img class="caracal-still" {shown} data-key="{key}">'


def _script_json(model: Mapping[str, Any]) -> str:
    """Write JSON that is safe inside a script element: no character that HTML could read as markup."""
    text = json.dumps(model, sort_keys=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data_uri(still: str) -> str:
    """Return the address that holds a still as text, which a server packs three times smaller than as base64.

    What an attribute or an address may not hold is escaped, and the quotes of SVG change, since most that would be
    escaped are quotes.
    """
    if not still.lstrip().startswith("<svg"):
        raise ValueError(f"still starts with {still[:12]!r}; give SVG text ('<svg...')")
    return "data:image/svg+xml," + quote(still.replace("'", "&#39;").replace('"', "'"), safe=_PLAIN)
