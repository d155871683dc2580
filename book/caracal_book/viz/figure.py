"""A figure that moves in a static page, in JupyterLab, in Colab and as an anywidget, from one JS module.

The module is a file beside this one that exports `render({model, el})`, anywidget's contract: it reads
its data with `model.get(name)` and draws into the element `el`, with the functions of `drawing.js`.
`Figure` inlines both files, the data, the style and a still image into one piece of HTML that needs no
kernel, no network and no other file.
"""

import base64
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

_PLAIN = " !$'()*+,-./:;=?@_~"  # stands for itself in the address of a still

_FRAME = """\
<div class="caracal-figure" id="{id}">
<style>
{css}</style>
<img class="caracal-still" src="{still}" alt="{alt}" style="max-width: 100%; height: auto;">
<div class="caracal-live" role="group" aria-label="{name}" hidden></div>
<details class="caracal-words"><summary>This figure in words</summary><p>{alt}</p></details>
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
  const still = host.querySelector(".caracal-still"), live = host.querySelector(".caracal-live");
  live.hidden = false;
  try {{
    render({{ model, el: live }});
    still.hidden = true;
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
        still: the first frame, as SVG text or PNG bytes.
        alt: what the figure shows, in words; also in a fold below it, for those who do not use the figure.
        state: the keys of the model that change as the reader drags, slides and presses keys.
        parts: JavaScript of folders in this package, such as "engine/loader", that the module uses.

    Raises:
        ValueError: no such module; no alt text; a still that is neither SVG nor PNG; a state that the model lacks.
        TypeError: the model holds something that JSON cannot.

    A notebook shows the figure when it is the last value of a cell.  The same arguments give the same HTML.
    """

    def __init__(self, module: str, model: Mapping[str, Any], still: str | bytes, alt: str,
                 state: Sequence[str] = (), parts: Sequence[str] = ()):
        self.module = module
        self.model = dict(model)
        self.alt = alt
        self.state = tuple(state)
        self._source = _module_source(module, parts)
        self._still = _data_uri(still)
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError(f"alt is {alt!r}; say in words what the figure shows")
        if missing_keys := set(self.state) - set(self.model):
            raise ValueError(f"state names {sorted(missing_keys)}; the model has {', '.join(self.model)}")
        self._model_json = _script_json(self.model)

    @property
    def id(self) -> str:
        """The host element's id: the module's name and a hash of everything the figure is made of."""
        parts = (self._source, _css(), self._model_json, self._still, self.alt)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"caracal-{self.module}-{digest[:12]}"

    def to_html(self) -> str:
        """Return the figure as one self-contained piece of HTML."""
        name = f"Figure: {self.module.replace('_', ' ')}"
        return _FRAME.format(id=self.id, css=_css(), still=self._still, alt=html.escape(self.alt), name=name,
                             source=self._source, model=self._model_json)

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
        members = {"_esm": self._source, "_css": _css(), **traits}
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


def _css() -> str:
    """Return figure.css with the colours of `style` in the places that it names."""
    css = (resources.files(__package__) / "figure.css").read_text(encoding="utf-8")
    return css.replace("/* palette */", palette.css()).replace("/* dark palette */", dark.css())


def _script_json(model: Mapping[str, Any]) -> str:
    """Write JSON that is safe inside a script element: no character that HTML could read as markup."""
    text = json.dumps(model, sort_keys=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data_uri(still: str | bytes) -> str:
    if isinstance(still, bytes) and still.startswith(b"\x89PNG"):
        return f"data:image/png;base64,{base64.b64encode(still).decode()}"
    if isinstance(still, str) and still.lstrip().startswith("<svg"):
        # As text, which a server packs three times smaller than as base64: what an attribute or an address may not
        # hold is escaped, and the quotes of SVG change, since most that would be escaped are quotes.
        return "data:image/svg+xml," + quote(still.replace("'", "&#39;").replace('"', "'"), safe=_PLAIN)
    raise ValueError(f"still starts with {still[:12]!r}; give SVG text ('<svg...') or the bytes of a PNG")
