"""The leading eigenvalues of several checkpoints against their index, as in Mendieta et al. 2022."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel, Part, RuledLine, Stems, Ticks, Values, reach
from fedscope.records.estimates import Eigenvalue

MOST_CURVES = 10
MOST_BARS = 30  # eigenvalues that get an error bar each; more have a band
LOG_FROM = 10.0  # ratio of the largest to the smallest eigenvalue from which the axis is logarithmic
LEFT = 0.5  # inches
APART = 0.07  # of neighbouring spectra's bars at most, in steps of the index


def eigenvalue_figure(
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw each checkpoint's eigenvalues on its samples, largest first, with 95 % intervals over the samples.

    The intervals are of ``value`` and ``stderr_data``, as tables print them, whose degrees of freedom are one
    less than the ``batches``. A record's ``interval`` is of the eigenvalue on ever more samples, without the
    upward bias of few, and may leave out the value: it is not drawn.
    """
    if not 1 <= len(spectra) <= MOST_CURVES:
        raise UserError(f"one figure shows 1 to {MOST_CURVES} spectra, not {len(spectra)}: make several")
    panel = eigenvalue_panel(spectra, labels, smallest=smallest)
    return panels_figure([panel], keys=1, caption=caption, left=LEFT, width=width)


def eigenvalue_panel(
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
) -> Panel:
    ends = [spectra, smallest if smallest is not None else [()] * len(spectra)]
    values = np.array([entry.value for end in ends for one in end for entry in one])
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise UserError("no eigenvalue is finite, so there is no spectrum to draw; see --json")
    parts: list[Part] = []
    for index, (upper, lower, label) in enumerate(zip(*ends, labels, strict=True)):
        # side by side, or bars would cover each other
        shift = (index - (len(spectra) - 1) / 2) * min(APART, 0.4 / len(spectra))
        parts += _curve(upper, label, index, shift)
        if lower:
            parts += _curve(lower, f"_{label}", index, shift)
    y = _ticks(finite)
    if y.scale == "symlog":
        parts.append(RuledLine(0.0, look={"color": "0.7", "linewidth": 0.5, "zorder": 0.5}))
    longest = max(map(len, spectra))
    x = Ticks(8, integer=True, limits=(0.8 - 0.02 * longest, longest + 0.02 * longest + 0.2))
    name = "index from either end" if smallest else "index"
    return Panel(parts, name, "eigenvalue", x=x, y=y, grid="")


def _curve(spectrum: Sequence[Eigenvalue], label: str, index: int, shift: float) -> list[Part]:
    values = np.array([entry.value for entry in spectrum])
    missing = int((~np.isfinite(values)).sum())
    label += f" ({missing} of {values.size} not finite)" if missing else ""
    few = len(values) <= MOST_BARS
    half = np.array([reach(*entry.error) if entry.error else np.nan for entry in spectrum])
    at = np.arange(1, len(values) + 1) + few * shift
    look = {
        **style.curve_look(index), "markeredgecolor": "white", "markeredgewidth": 0.3,
        "markersize": 3 if few else 2, "markevery": 1 if few else (len(values) // 25, len(values) // 12),
    }  # fmt: skip
    marker = style.MARKERS[index % len(style.MARKERS)]
    line = Line(label, at, values, None if few else half, shaded=True, marker=marker, look=look)
    return [line, *[Stems(at, values - half, values + half, look["color"], label=f"_{label}")] * few]


def _ticks(finite: Values) -> Ticks:
    top = float(np.abs(finite).max())
    if finite.min() <= 0 < top:
        return Ticks(scale="symlog", within=10.0 ** math.ceil(math.log10(top / 1000)))
    if finite.min() > 0 and top > LOG_FROM * finite.min():
        return Ticks(9, scale="log")
    return Ticks(6)
