"""The book's colours, each written here and nowhere else, and its matplotlib style.

The hues are Okabe and Ito's, chosen to be told apart by colour-blind readers: darker than theirs on a light ground,
lighter on a dark one, so that each stands out at 3 to 1 or more.  Each of the four that carry a meaning keeps it in
every figure of the book, moving or still.
"""

from dataclasses import asdict, dataclass

__all__ = ["dark", "palette", "use_style"]


@dataclass(frozen=True)
class Palette:
    """Hex colours by meaning, for a ground of the colour `paper`."""

    content: str  # v, blue
    gate: str  # g, orange
    result: str  # r, green
    wrapped: str  # wrapped around, or from the future: the warning colour, vermilion
    others: tuple[str, str]  # for series that are none of the first four: sky blue, purple
    ink: str
    muted: str
    rule: str
    shade: str
    paper: str

    def css(self) -> str:
        """Return the colours as CSS custom properties, `--content: #0064A0; ...`; `others` are `--other-0` on."""
        colours = asdict(self)
        others = {f"other-{k}": colour for k, colour in enumerate(colours.pop("others"))}
        return " ".join(f"--{name}: {colour};" for name, colour in (colours | others).items())


# Plots and stills stand on white in every theme, so they take the light colours.
palette = Palette(content="#0064A0", gate="#D08200", result="#00875F", wrapped="#C03C00", others=("#2E97D3", "#C973A3"),
                  ink="#222222", muted="#5F5F5F", rule="#D9D9D9", shade="#F1F1F1", paper="#FFFFFF")
dark = Palette(content="#3D9FE8", gate="#F9B833", result="#3CCB9B", wrapped="#E0703A", others=("#A8DDFF", "#D07FB0"),
               ink="#E8E8E8", muted="#A8A8A8", rule="#3C4148", shade="#22272E", paper="#171B21")

# Inches: 500 pixels on a page, and still legible when a phone scales it to 330.
_WIDTH, _HEIGHT = 5.2, 2.9


def use_style() -> None:
    """Draw matplotlib figures in the book's style from here on; in a notebook also as SVG.

    White background in every theme, one width, no top and right spine, no random ids in the files.

    Raises:
        ImportError: matplotlib is not installed; the message says how to install it.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError("viz.use_style() needs matplotlib: pip install matplotlib") from None

    matplotlib.rcParams.update({
        "figure.figsize": (_WIDTH, _HEIGHT),
        "figure.constrained_layout.use": True,
        "figure.facecolor": palette.paper,
        "savefig.facecolor": palette.paper,
        "font.family": "sans-serif",
        "font.size": 11,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.labelsize": 11,
        "axes.labelcolor": palette.ink,
        "axes.edgecolor": palette.muted,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.prop_cycle": matplotlib.cycler(color=[palette.content, palette.gate, palette.result,
                                                    palette.wrapped, *palette.others]),
        "grid.color": palette.rule,
        "text.color": palette.ink,
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "xtick.labelcolor": palette.ink,
        "ytick.labelcolor": palette.ink,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "svg.hashsalt": "caracal",
    })
    _show_as_svg()


def _show_as_svg() -> None:
    """Make a running notebook kernel show figures as SVG without a date; do nothing elsewhere."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if hasattr(get_ipython(), "kernel"):
        set_matplotlib_formats("svg", bbox_inches=None, metadata={"Date": None})
