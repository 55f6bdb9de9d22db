"""The look of all figures: sizes, fonts, colours, and how a figure becomes a file.

The caller's own matplotlib settings are neither read nor changed. Only fonts that matplotlib ships are
named, so a figure looks the same on every machine.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style
import seaborn
from matplotlib.colors import Colormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from fedscope import __version__
from fedscope.errors import UserError
from fedscope.storage import atomic_file

SINGLE_COLUMN = 3.3  # inches
WIDE_COLUMN = 5.0  # inches: between one column and two, for a pair of panels
DOUBLE_COLUMN = 6.9  # inches

TITLE_SIZE = 8.0  # points
TEXT_SIZE = 7.0  # points
SMALL_SIZE = 6.0  # points

INK = "0.15"
FAINT_INK = "0.4"
NOT_FINITE_FILL = "0.88"
HATCHED: dict[str, Any] = {  # a patch where values are not finite or not resolved
    "facecolor": NOT_FINITE_FILL, "edgecolor": "0.6", "linewidth": 0, "hatch": "/////",
}  # fmt: skip

Color = tuple[float, float, float]  # RGB

LINESTYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))
_COLORS = 10  # of the palette
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")

_RC: dict[str, Any] = {
    "font.family": ["STIXGeneral", "DejaVu Sans", "serif"],
    "mathtext.fontset": "stix",
    "font.size": TEXT_SIZE,
    "axes.titlesize": TITLE_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "xtick.labelsize": SMALL_SIZE,
    "ytick.labelsize": SMALL_SIZE,
    "legend.fontsize": SMALL_SIZE,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.5,
    "axes.labelpad": 2.0,
    "axes.formatter.use_mathtext": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.1,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.35,
    "ytick.minor.width": 0.35,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "savefig.dpi": 300,
    "figure.dpi": 300,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedscope",
}

_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "01234567890123456789-")


@contextmanager
def paper_style() -> Iterator[None]:
    layers = [dict(seaborn.axes_style("ticks")), dict(seaborn.plotting_context("paper")), _RC]
    # after_reset: a user's matplotlibrc (usetex, fonts) must not leak into a reproducible figure
    with matplotlib.style.context(layers, after_reset=True):
        yield


def method_colors(count: int) -> list[Color]:
    """Return ``count`` colour-blind-safe RGB colours; they repeat after ten."""
    return list(seaborn.color_palette("colorblind", count))


def curve_look(index: int) -> dict[str, Any]:
    """Return colour and line style of the ``index``-th curve; no two of the first fifty share both."""
    style = index + 2 * (index // _COLORS)  # another one where the colours begin again
    return {"color": method_colors(index + 1)[-1], "linestyle": LINESTYLES[style % len(LINESTYLES)]}


def class_colors(count: int) -> list[Color]:
    """Return a colour per class: up to ten that are told apart, of more a sequential map in class order."""
    return method_colors(count) if count <= 10 else list(seaborn.color_palette("viridis", count))


def loss_colormap() -> Colormap:
    """Return the sequential map of the surfaces: perceptually uniform, lightness grows with the loss."""
    colormap: Colormap = seaborn.color_palette("mako", as_cmap=True)
    return colormap


def ink_on(fill: ColorType) -> str:
    red, green, blue = to_rgb(fill)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else INK


def typeset(text: str) -> str:
    """Return plain ``text`` for matplotlib: λ_max, w_k, H_N… and sub- and superscript digits become mathtext.

    The serif font has no glyphs for them; a dollar sign is escaped.
    """
    text = text.replace("$", r"\$").replace("λ_max", r"$\lambda_{\max}$")
    text = re.sub(r"\b([wpfF]_k|H_[ND])\b", r"$\1$", text)
    text = re.sub("[₀-₉]+", lambda digits: f"$_{{{digits[0].translate(_DIGITS)}}}$", text)
    return re.sub("[⁻⁰¹²³⁴-⁹]+", lambda digits: f"$^{{{digits[0].translate(_DIGITS)}}}$", text)


def check_format(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "pdf", "svg"):
        raise UserError(f"cannot write a figure to '{path}': name it with the suffix .png, .pdf or .svg")
    return kind


def save(figure: Figure, path: Path, *, record: Mapping[str, Any]) -> None:
    """Write ``figure`` to ``path`` atomically, with ``record``, its origin, in the metadata.

    No date is written, so the same figure and record give the same bytes.
    """
    kind = check_format(path)
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    maker = f"fedscope {__version__}"
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": maker, "Description": text},
        "pdf": {"Creator": maker, "Subject": text, "CreationDate": None},
        "svg": {"Creator": maker, "Description": text, "Date": None},
    }
    with paper_style(), atomic_file(path, below=None) as handle:
        figure.savefig(handle, format=kind, metadata=metadata[kind])
