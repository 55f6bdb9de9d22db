"""The leading eigenvalues of several checkpoints against their index, as in Mendieta et al. 2022."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.intervals import reach
from fedscope.figures.spectrum.legend_above import page_with_legend
from fedscope.records.estimates import Eigenvalue

MOST_CURVES = 10
MOST_BARS = 30  # eigenvalues that get an error bar each; more have a band
LOG_FROM = 10.0  # ratio of the largest to the smallest eigenvalue from which the axis is logarithmic
LEFT = 0.5  # inches
APART = 0.07  # of neighbouring spectra's bars at most, in steps of the index

Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def eigenvalue_figure(
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw each checkpoint's eigenvalues on its samples, largest first, with 95 % intervals over the samples.

    ``smallest`` has those of the lower end, the smallest first, drawn against their index from there.

    The intervals are of ``value`` and ``stderr_data``, as tables print them, whose degrees of freedom are one
    less than the ``batches``. A record's ``interval`` is of the eigenvalue on ever more samples, without the
    upward bias of few, and may leave out the value: it is not drawn. The axis is logarithmic where all
    are positive and span a factor of ten, and symmetric-logarithmic, linear up to a thousandth of the
    largest, where some are not. Errors are bars, bands from ``MOST_BARS`` eigenvalues on. ``caption`` stands
    above; ``width`` is in inches.
    """
    if not 1 <= len(spectra) <= MOST_CURVES:
        raise UserError(f"one figure shows 1 to {MOST_CURVES} spectra, not {len(spectra)}: make several")
    draw = partial(draw_eigenvalues, spectra=spectra, labels=labels, smallest=smallest)
    return page_with_legend(draw, entries=len(spectra), caption=caption, left=LEFT, width=width)


def draw_eigenvalues(
    axes: Axes,
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
) -> None:
    """Draw the eigenvalues with their intervals and scales, but without a legend."""
    ends = [spectra, smallest if smallest is not None else [()] * len(spectra)]
    finite = np.array([entry.value for end in ends for one in end for entry in one])
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        raise UserError("no eigenvalue is finite, so there is no spectrum to draw; see --json")
    for index, (upper, lower, label) in enumerate(zip(*ends, labels, strict=True)):
        # side by side, or bars would cover each other
        shift = (index - (len(spectra) - 1) / 2) * min(APART, 0.4 / len(spectra))
        _draw_curve(axes, upper, label, index, shift)
        if lower:
            _draw_curve(axes, lower, "_same as above", index, shift)
    _scale(axes, finite)
    longest = max(map(len, spectra))
    axes.set_xlim(1 - 0.02 * longest - 0.2, longest + 0.02 * longest + 0.2)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.set(xlabel="index from either end" if smallest else "index", ylabel="eigenvalue")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_curve(axes: Axes, spectrum: Sequence[Eigenvalue], label: str, index: int, shift: float) -> None:
    values = np.array([entry.value for entry in spectrum])
    missing = int((~np.isfinite(values)).sum())
    label += f" ({missing} of {values.size} not finite)" if missing else ""
    few = len(values) <= MOST_BARS
    look, at = style.curve_look(index), np.arange(1, len(values) + 1) + few * shift
    low, high = _intervals(spectrum)
    axes.plot(
        at, values, label=style.typeset(label), marker=style.MARKERS[index % len(style.MARKERS)],
        markersize=3 if few else 2, markeredgecolor="white", markeredgewidth=0.3,
        markevery=1 if few else (len(values) // 25, len(values) // 12), **look,
    )  # fmt: skip
    if few:
        axes.vlines(at, low, high, color=look["color"], linewidth=0.7)
    else:
        axes.fill_between(at, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _intervals(spectrum: Sequence[Eigenvalue]) -> tuple[Values, Values]:
    values = np.array([entry.value for entry in spectrum])
    half = np.array([reach(*entry.error) if entry.error else np.nan for entry in spectrum])
    return values - half, values + half


def _scale(axes: Axes, finite: Values) -> None:
    top = float(np.abs(finite).max())
    if finite.min() <= 0 < top:
        threshold = top / 1000
        axes.set_yscale("symlog", linthresh=threshold, linscale=0.5)
        axes.axhline(0, color="0.7", linewidth=0.5, zorder=0.5)
        decades = [10.0**e for e in range(int(np.ceil(np.log10(threshold))), int(np.log10(top)) + 1)]
        signs = [(-1, finite.min() < -threshold), (1, finite.max() > threshold)]
        ticks = [sign * decade for sign, there in signs if there for decade in decades]
        axes.set_yticks([0.0, *ticks], [format_value(tick) for tick in (0.0, *ticks)])
        axes.yaxis.set_minor_locator(NullLocator())
        return
    if finite.min() > 0 and top > LOG_FROM * finite.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value))
