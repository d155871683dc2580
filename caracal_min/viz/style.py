"""The book's colours and its matplotlib style.

The colours are Okabe and Ito's, chosen to be told apart by colour-blind readers.  Each of the four that carry
a meaning keeps it in every figure of the book, moving or still.
"""

from dataclasses import dataclass

__all__ = ["palette", "use_style"]


@dataclass(frozen=True)
class Palette:
    """Hex colours by meaning; `others` are for series that are none of the first four."""

    content: str = "#0072B2"  # v, blue
    gate: str = "#E69F00"  # g, orange
    result: str = "#009E73"  # r, green
    wrapped: str = "#D55E00"  # wrapped around, or from the future: the warning colour, vermillion
    ink: str = "#222222"
    muted: str = "#6b6b6b"
    rule: str = "#d9d9d9"
    others: tuple[str, ...] = ("#56B4E9", "#CC79A7")


palette = Palette()

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
        raise ImportError("viz.use_style() needs matplotlib; install it: pip install matplotlib") from None

    matplotlib.rcParams.update({
        "figure.figsize": (_WIDTH, _HEIGHT),
        "figure.constrained_layout.use": True,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
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
