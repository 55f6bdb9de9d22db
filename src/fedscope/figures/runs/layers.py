"""λ_max of each layer's own block, of several methods, from the input down to the output."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.label_placement import text_size
from fedscope.figures.runs.lines import Values

MOST_METHODS = 8
MOST_LAYERS = 120
FEW_DECADES = 10.0  # ratio of the axis' ends, up to which its ticks are closer
APART = 0.5  # of the space of a layer, over which its methods' points are spread

# inches
RIGHT, TOP, BOTTOM, MARGIN = 0.1, 0.06, 0.34, 0.12
LAYER, LEGEND_ROW, TITLE_LINE = 0.135, 0.125, 0.16


def layer_figure(
    layers: Sequence[str],
    values: Mapping[str, Values],
    *,
    title: str = "",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw a row for each layer, the first on top, with λ_max and its 95 % interval for each method.

    Args:
        layers: their names.
        values: by method, λ_max of each layer and half of its 95 % interval, (layers, 2); NaN where unknown.
        title: stands above.
        caption: below the title.
        width: in inches.
    """
    if not 1 <= len(values) <= MOST_METHODS or len(layers) > MOST_LAYERS:
        raise UserError(
            f"one figure shows 1 to {MOST_METHODS} methods and up to {MOST_LAYERS} layers, not {len(values)} "
            f"and {len(layers)}: make several"
        )
    if not any((of[:, 0] > 0).any() for of in values.values()):
        raise UserError("no layer has a positive λ_max, so there is nothing to draw; see --json")
    with style.paper_style():
        left = MARGIN + max(text_size(style.typeset(name), style.SMALL_SIZE)[0] for name in layers) / POINTS
        titles = wrapped(title, width=width, size=style.TITLE_SIZE)
        notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
        legend = TITLE_LINE * len(titles) + LEGEND_ROW * len(notes) + LEGEND_ROW * -(-len(values) // 2) + 0.05
        high = LAYER * (len(layers) + 0.4)
        page = Page(width=width, height=TOP + legend + high + BOTTOM)
        page.write_head(titles, notes, top=TOP, title_step=TITLE_LINE, note_step=LEGEND_ROW)
        box = page.box(left=left, top=TOP + legend, width=width - left - RIGHT, height=high)
        axes = page.figure.add_axes(box)
        for index, (name, of) in enumerate(values.items()):
            shift = APART * ((index + 0.5) / len(values) - 0.5)
            _draw(axes, name, of, np.arange(len(layers), dtype=np.float64) + shift, index)
        axes.set_yticks(range(len(layers)), [style.typeset(name) for name in layers])
        axes.set(
            ylim=(len(layers) - 0.3, -0.7), xlabel=style.typeset("λ_max of the layer's block"), xscale="log"
        )
        low, high = axes.get_xlim()
        subs = (1, 2, 5) if high > FEW_DECADES * low else (1, 1.5, 2, 3, 4, 5, 7)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: format_value(value))
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1 + 0.03 / high), borderaxespad=0, ncols=2, handlelength=1.4,
            columnspacing=1.2, labelspacing=0.25,
        )  # fmt: skip
    return page.figure


def _draw(axes: Axes, name: str, values: Values, at: Values, index: int) -> None:
    center, above = np.nan_to_num(values.T)
    known = center > 0
    # a bar down to zero or below has no end on a logarithmic axis
    below = np.minimum(above, 0.999 * center)
    axes.errorbar(
        center[known], at[known], xerr=np.array([below, above])[:, known],
        label=style.typeset(name), fmt=style.MARKERS[index % len(style.MARKERS)], markersize=3,
        color=style.method_colors(index + 1)[-1], elinewidth=0.7,
    )  # fmt: skip
