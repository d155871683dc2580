"""Drawings for a page: in the colours of both themes, without their ground, none hard to see, each program once.

A notebook draws on white with `viz.palette`, so that it reads well wherever it runs.  The pages show it in the colours
of `viz.dark` too.
"""

import base64
import io
import re
from dataclasses import asdict

import numpy as np
from PIL import Image

from ..viz.figure import still_image, still_of
from ..viz.style import Palette, dark, palette

_NEAR = 3  # largest difference from a colour of the palette in one channel of a raster, by rounding
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_RASTER = re.compile(r"(?<=data:image/png;base64,)[\w+/=\s]+")
_GROUNDS = ((re.compile(r'style="fill: #ffffff"/>'), 'style="fill: none"/>'),  # matplotlib's figure and axes
            (re.compile(r'(<rect width="\d+" height="\d+") fill="#FFFFFF"/>'), r'\1 fill="none"/>'))  # viz.svg's
_FIGURE = re.compile(r"""(<div class="caracal-figure" id="caracal-\w+-[0-9a-f]+">\n)(<style .*?</style>\n)(<img .*?)"""
                     r"""(<script type="module">)(.*?)(\nfor \(const host of document.*?</script>)""", re.DOTALL)
_CSS = re.compile(r'<style data-of="(\S+)">.*?</style>\n', re.DOTALL)
_STILL = re.compile(r'<img class="caracal-still" [^>]*alt="([^"]*)"[^>]* data-key="([\w-]+)">')
_PART = re.compile(r"^// part (\S+)\n", re.MULTILINE)
_NAMES = re.compile(r"^(?:export )?(?:async )?(?:const|class|function\*?) (\w+)", re.MULTILINE)  # one in a statement
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_STYLE, _LETTERS = re.compile(r'style="([^"]*)"'), re.compile(r'<g style="([^"]*)" transform')


def colours(one: Palette) -> list[str]:
    """Return the colours of a palette in lower case, those of two palettes in the same order."""
    single = asdict(one)
    return [colour.lower() for colour in (*single.pop("others"), *single.values())]


def on_dark(svg: str) -> str:
    """Return a drawing in the colours of the dark palette.

    Raises:
        ValueError: the drawing has a colour that is none of `viz.palette`.
    """
    there = dict(zip(colours(palette), colours(dark), strict=True))
    unknown = {colour.lower() for colour in _COLOUR.findall(_RASTER.sub("", svg))} - set(there)
    if unknown:
        raise ValueError(f"has the colours {', '.join(sorted(unknown))}; take those of viz.palette")
    svg = _COLOUR.sub(lambda found: there[found[0].lower()], svg)
    if not re.search(r"<svg\b[^>]*? fill=", svg):
        svg = svg.replace("<svg ", f'<svg fill="{dark.ink}" ', 1)  # what has no colour is black, and here ink
    return rasters_in(svg, dark)


def raster_in(png: bytes, theme: Palette) -> bytes:
    """Return an image of colours of the light palette, each more or less transparent, in those of a palette.

    Opacity is rounded to 64 steps, which the eye does not see, so that most images fit a palette of their own.

    Raises:
        ValueError: a pixel that shows has a colour that is none of the light palette.
    """
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int)
    light, target = (np.array([rgb(colour) for colour in colours(one)]) for one in (palette, theme))
    distance = np.abs(pixels[..., None, :3] - light).max(-1)  # (height, width, colours)
    seen = pixels[..., 3] > 0
    if (distance.min(-1)[seen] > _NEAR).any():
        raise ValueError("has an image with colours between those of viz.palette; let a map of colours run from a "
                         "transparent one to the same one opaque, as in [colour.ink + '00', colour.ink]")
    opacity = np.round(pixels[..., 3] / 255 * 63) / 63 * 255
    painted = np.dstack([target[distance.argmin(-1)] * seen[..., None], opacity]).round().astype(np.uint8)
    kinds, of_kind = np.unique(painted.reshape(-1, 4), axis=0, return_inverse=True)
    image = Image.fromarray(painted, "RGBA")
    if len(kinds) <= 256:
        image = Image.fromarray(of_kind.reshape(painted.shape[:2]).astype(np.uint8), "P")
        image.putpalette(kinds.tobytes(), "RGBA")
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def rasters_in(svg: str, theme: Palette) -> str:
    """Return a drawing with its images in the colours of a palette."""
    return _RASTER.sub(lambda found: base64.b64encode(raster_in(base64.b64decode(found[0]), theme)).decode(), svg)


def without_ground(svg: str) -> str:
    """Return a drawing of matplotlib or of `viz.svg` without the white that it stands on."""
    for ground, nothing in _GROUNDS:
        svg = ground.sub(nothing, svg)
    return svg


def faint(svg: str, theme: Palette) -> set[str]:
    """Return what is hard to see in a plot of matplotlib on the paper of a theme.

    Letters need a contrast of 4.5 to 1, lines of 3 to 1; letters in the colour of the paper stand on something filled.
    """
    letters, lines = map(_look, _LETTERS.findall(svg)), map(_look, _STYLE.findall(svg))
    seen = {("letters", look["fill"], opacity_of(look), 4.5) for look in letters if look["fill"] != theme.paper.lower()}
    seen |= {("a line", look["stroke"], opacity_of(look), 3) for look in lines
             if "stroke" in look and look.get("fill") == "none"}
    paper = rgb(theme.paper)
    ratios = {(name, colour, opacity, least): contrast(rgb(colour) * opacity + paper * (1 - opacity), paper)
              for name, colour, opacity, least in seen}
    return {f"{name} in {colour}, opacity {opacity:g}: {ratio:.1f} to 1, where {least} is needed"
            for (name, colour, opacity, least), ratio in ratios.items() if ratio < least}


def opacity_of(look: dict[str, str]) -> float:
    return float(look.get("opacity", look.get("stroke-opacity", 1)))


def contrast(a: np.ndarray, b: np.ndarray) -> float:
    """Return the contrast of two colours, (3,) each, from 0 to 255, as WCAG 2 defines it."""
    light = [float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))
             for c in (a / 255, b / 255)]
    return (max(light) + 0.05) / (min(light) + 0.05)


def _look(style: str) -> dict[str, str]:
    return {key.strip(): value.strip().lower() for key, _, value in (part.partition(":") for part in style.split(";"))}


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[k:k + 2], 16) for k in (1, 3, 5)])


def with_stills(html: str) -> str:
    """Return HTML whose figures have the stills that the folder `viz/stills` has now, whenever they were made."""
    return _STILL.sub(lambda found: still_image(still_of(found[2]), *found.groups()), html)


def share_figures(body: str) -> str:
    """Return a page's HTML in which what several figures are made of stands once.

    A figure is whole in itself, for notebooks.  In a page the first that needs a part of a program keeps its functions
    under its name, the others take them from there; a style stands in the first figure that needs it; and comments go.
    """
    kept: set[str] = set()
    styled: set[str] = set()

    def once(name: str, source: str, names: str) -> str:
        if name in kept:
            return f"const {{ {names} }} = caracalParts['{name}'];\n"
        kept.add(name)
        return f"{_COMMENT.sub('', source)}\n(globalThis.caracalParts ??= {{}})['{name}'] = {{ {names} }};\n"

    def style(match: re.Match) -> str:
        new = match[1] not in styled
        styled.add(match[1])
        return match[0] * new

    def shared(match: re.Match) -> str:
        opening, styles, still, script, program, rest = match.groups()
        *parts, module = zip(*[iter(_PART.split(program)[1:])] * 2, strict=True)
        parts = [] if module[0] in kept else [once(*part, ", ".join(_NAMES.findall(part[1]))) for part in parts]
        return (opening + _CSS.sub(style, styles) + still + script + "\n" + "".join(parts) + once(*module, "render")
                + rest)

    return _FIGURE.sub(shared, with_stills(body))
