"""Where in a network a derivative is wrong: each module tried alone, on what it gets from a few samples."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscope.landscape.loss.checks import functions_of
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import flat
from fedscope.streams import random_signs

_STEPS = ((1e-6, 3e-7), (1e-3, 5e-4))
_DIRECTIONS = 4
_MOST = 3  # places that are named
_SAME = 1e-5  # relative distance of a derivative from a difference
_SETTLED = 0.1  # of the distance from a derivative, that two differences may be apart


def same(exact: Tensor, difference: Tensor) -> bool:
    """Say whether a derivative (n,) is what a difference (n,) shows, to 1e-5; both may be 0."""
    size = max(float(exact.norm()), float(difference.norm()))
    return float((exact - difference).norm()) <= _SAME * size  # never where one is not finite


def settles_elsewhere(
    exact: Tensor,
    difference: Callable[[float], Tensor],
    steps: Sequence[tuple[float, float]],
    room: float = 0,
) -> float:
    """Return how far from a derivative its differences settle, relative to the larger; 0: nowhere, or at it.

    Two differences that are nearer to each other than a tenth of their distance from ``exact`` have settled.
    Rounding, truncation and kinks leave them further apart, so that no size of any error need be known.
    """
    for pair in steps:
        first, second = map(difference, pair)
        if same(exact, first) or same(exact, second):
            return 0.0
        off = min(float((exact - found).norm()) for found in (first, second))
        if off > room and float((first - second).norm()) <= _SETTLED * off:  # not where one is not finite
            return off / max(float(exact.norm()), float(second.norm()))
    return 0.0


def place_of(loss: FlatLoss, batch: Batch, *, twice: bool) -> str:
    """Return where a derivative is wrong, the second one or the first: ': X in module m'; '' if unknown.

    The innermost modules that fail alone are named, and each ``autograd.Function`` in them; where none fails,
    all such functions of the network and the loss.
    """
    functions = functions_of(loss.model, lambda: loss.of(loss.outputs(batch[0]), batch[1]))
    failing: list[str] = []
    for name, alone in _calls(loss, batch):
        if not any(not name or other.startswith(f"{name}.") for other in failing) and alone.fails(twice):
            failing.append(name)
    places = [f"module {name!r}" for name in failing if name]
    found = [f"{function} in {place}" for function, place in functions if place in places or not places]
    found = found or places
    more = f" and {len(found) - _MOST} more places" if len(found) > _MOST else ""
    return f": {', '.join(found[:_MOST])}{more}" if found else ""


def _calls(loss: FlatLoss, batch: Batch) -> list[tuple[str, "_Alone"]]:
    seen: dict[str, _Alone] = {}

    def call(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        seen.setdefault(name, _Alone(module, args))

    handles = [
        module.register_forward_pre_hook(lambda module, args, name=name: call(name, module, args))
        for name, module in loss.model.named_modules()
    ]
    try:
        with torch.no_grad():
            loss.outputs(batch[0])
    finally:
        for handle in handles:
            handle.remove()
    return sorted(seen.items(), key=lambda item: -item[0].count("."))


class _Alone:
    """A module's outputs, summed with random signs, as a function of its inputs and weights together."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._module, self._args = module, args
        self._inputs = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.is_floating_point()]
        named = [(name, p.detach()) for name, p in module.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._points = [args[i].detach() for i in self._inputs] + [p for _, p in named]

    def fails(self, twice: bool) -> bool:
        try:
            center = joined(self._points)
            size = (_DIRECTIONS, len(center))
            along = random_signs(size, torch.Generator().manual_seed(0), center.dtype).to(center.device)

            def change(step: float) -> Tensor:
                if twice:
                    ends = [self._gradient(center + e * along[0])[0] for e in (step, -step)]
                    return (ends[0] - ends[1]) / (2 * step)
                sums = [[self._sum(center + e * v)[0].detach() for e in (step, -step)] for v in along]
                return torch.stack([(a - b) / (2 * step) for a, b in sums])

            slope, points = self._gradient(center, again=twice)
            exact = (
                joined(pulled((slope @ along[0],), points, (slope.new_ones(()),))) if twice else along @ slope
            )
            return bool(settles_elsewhere(exact, change, _STEPS))
        except Exception:  # whatever a module raises that does not run alone
            return False

    def _gradient(self, at: Tensor, *, again: bool = False) -> tuple[Tensor, list[Tensor]]:
        value, points = self._sum(at)
        return joined(pulled((value,), points, (torch.ones_like(value),), again=again)), points

    def _sum(self, at: Tensor) -> tuple[Tensor, list[Tensor]]:
        pieces = zip(at.split([point.numel() for point in self._points]), self._points, strict=True)
        points = [piece.view(point.shape).clone().requires_grad_(True) for piece, point in pieces]
        args, inputs = list(self._args), len(self._inputs)
        for i, point in zip(self._inputs, points[:inputs], strict=True):
            args[i] = point
        weights = dict(zip(self._names, points[inputs:], strict=True))
        outputs = flat(functional_call(self._module, weights, tuple(args)))
        signs = random_signs(tuple(outputs.shape), torch.Generator().manual_seed(1), outputs.dtype)
        return (outputs * signs.to(outputs.device)).sum(), points
