"""The expected cost of a training step on a residual network, from its shapes alone.

The rows of FedAlign's Tables 5 and 7 (Mendieta et al. 2022) at the options of the published program.
:mod:`.training_cost` counts the steps that a run would take; here random choices are averaged exactly, and no
data is needed.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from fedscope.federated.costs.training_cost import ClientCost
from fedscope.federated.methods import METHODS
from fedscope.federated.methods.subnetworks import sides
from fedscope.federated.record.options import Values
from fedscope.models.network_cost import norm_affine, parameter_count
from fedscope.models.products import Products, products
from fedscope.models.resnet import Block, ResNet
from fedscope.models.slimmable import channels as slim_channels
from fedscope.models.stochastic_depth import Schedule, keep_probabilities

GRID = 2000  # widths, evenly spaced, that stand for all
COUNTS = (1, 2, 3, 4)  # of GradAug's sub-networks


def expected_costs(network: ResNet, projected: ResNet, channels: int, side: int) -> dict[str, ClientCost]:
    """Return the cost of a step by method, on images (``channels``, ``side``, ``side``).

    ``projected`` is ``network`` with a head, on which MOON runs. GradAug stands once for each n = 1…4.
    """
    layers = products(network, channels, side)
    whole = at_width(layers, 1)
    auxiliary = 3 * at_width(products(projected, channels, side), 1)  # with the global and the last own model
    rows = [
        _row("fedavg", network, whole),
        _row("fedprox", network, whole),
        _row("moon", projected, auxiliary),
        _row("stochdepth", network, stochdepth_passes(network, layers, options("stochdepth"))),
    ]
    scaled = {size: products(network, channels, size) for size in set(sides(options("gradaug"), side))}
    for count in COUNTS:
        passes = gradaug_passes(scaled, side, options("gradaug", count))
        rows.append(_row("gradaug", network, whole + passes, f" n={count}"))
    last = [layer for layer in layers if layer.name.startswith(f"layer{network.depth}.")]
    rows.append(_row("fedalign", network, whole + fedalign_passes(last, options("fedalign"))))
    return dict(rows)


def at_width(layers: Sequence[Products], width: float, divisor: int = 8) -> int:
    return sum(layer.at(width, divisor) for layer in layers)


def stochdepth_passes(network: ResNet, layers: Sequence[Products], options: Values) -> float:
    """Return the expected multiply-accumulates of StochDepth's pass: branch b counts p_b-fold."""
    schedule: Schedule = "paper" if options["sd.schedule"] == "paper" else "code"
    names = [name for name, module in network.named_modules() if isinstance(module, Block)]
    keeps = keep_probabilities(len(names), float(options["sd.keep"]), schedule)
    share: dict[str, float] = dict(zip(names, keeps, strict=True))
    return sum(layer.at(1) * share.get(layer.name.partition(".branch.")[0], 1.0) for layer in layers)


def gradaug_passes(scaled: dict[int, list[Products]], side: int, options: Values) -> float:
    """Return the expected multiply-accumulates of GradAug's n sub-networks; each side is as likely.

    ``scaled`` has the layers by side. Widths are rounded to channels, so the mean over them is one over the
    few networks that there are.
    """
    divisor, least, (fixed, drawn) = int(options["slim.divisor"]), *_widths(options)
    chosen = sides(options, side)
    counts = sorted({layer.outputs for layer in scaled[side]})
    grid = (least + (1 - least) * (step + 0.5) / GRID for step in range(GRID))
    alike = Counter[tuple[int, ...]]()
    width_of = dict[tuple[int, ...], float]()
    for width in grid:
        rounded = tuple(slim_channels(count, width, divisor) for count in counts)
        alike[rounded] += 1
        width_of[rounded] = width

    def narrow(width: float) -> float:
        return fmean(at_width(scaled[size], width, divisor) for size in chosen)

    random = sum(number * narrow(width_of[rounded]) for rounded, number in alike.items()) / GRID
    return fixed * narrow(least) + drawn * random


def square_law(whole: float, side: int, options: Values) -> float:
    """Return GradAug's cost as the papers print it: multiply-accumulates fall with width² and side².

    ``whole`` is that of the network on images of ``side``; means of the width and of the side stand for what
    is drawn, and channels are not rounded. Less than what a step runs: see :func:`gradaug_passes`.
    """
    least, (fixed, drawn) = _widths(options)
    ratio = fmean(sides(options, side)) / side
    return whole * (1 + ratio**2 * (fixed * least**2 + drawn * ((1 + least) / 2) ** 2))


def fedalign_passes(last: Sequence[Products], options: Values) -> float:
    return at_width(last, float(options["fedalign.width"]), int(options["slim.divisor"]))


def options(method: str, count: int | None = None) -> Values:
    return METHODS[method].values({} if count is None else {"gradaug.n": str(count)}, "code")


def _widths(options: Values) -> tuple[float, tuple[int, int]]:
    fixed = int(options["gradaug.widths"] == "min_plus_uniform")
    return float(options["gradaug.width"]), (fixed, int(options["gradaug.n"]) - fixed)


def _row(method: str, network: ResNet, passes: float, note: str = "") -> tuple[str, ClientCost]:
    held = parameter_count(network) - norm_affine(network)
    return method + note, ClientCost(passes, held * METHODS[method].models_held(), 1)
