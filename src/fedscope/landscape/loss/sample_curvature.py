"""Each sample's own curvature along a direction: vᵀH_i v, by derivatives in forward mode and no gradient.

With ℓ_i(t) the loss of sample i at w + t·v, the Hessian's form is ℓ_i''(0), the empirical Fisher's ℓ_i'(0)²,
and the generalised Gauss–Newton's ℓ_i'' of the outputs' linear part in t. The loss of a batch must be the
mean of what it is for each sample alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, jvp, vmap

from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.trees import Tree, arguments, cloned, mapped, split

Direction = tuple[Any, Any]
"""A point, a tensor or a network's weights by name, and a tangent of the same shapes at it."""


def hessian_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return vᵀH_i v (n,) of a batch's samples, for a (n_parameters,) vector v."""
    outputs, targets = _outputs(loss, inputs), cloned(targets)
    return _second(lambda weights: _losses(loss, outputs(weights), targets), _weights(loss, v))


def gauss_newton_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return vᵀJ_iᵀH_f J_i v (n,)."""
    linear, targets = _first(_outputs(loss, inputs), _weights(loss, v)), cloned(targets)
    return _second(lambda outputs: _losses(loss, outputs, targets), linear)


def fisher_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return (g_iᵀv)² (n,)."""
    outputs, targets = _outputs(loss, inputs), cloned(targets)
    return _first(lambda weights: _losses(loss, outputs(weights), targets), _weights(loss, v))[1].square()


def drawn_forms(loss: FlatLoss, inputs: Tree, residuals: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
    """Return n·mean_s (r_isᵀJ_i v)² (n,) for residuals (n, S, …) as a function of the outputs (n, …)."""
    at, slope = _first(_outputs(loss, inputs), _weights(loss, v))
    along = residuals(at) * slope[:, None]
    return len(at) * along.reshape(*along.shape[:2], -1).sum(2).square().mean(1)


def _weights(loss: FlatLoss, v: Tensor) -> Direction:
    parts = loss.split(loss.center), loss.split(loss.moving(v))
    at, along = (dict(zip(loss.names, part, strict=True)) for part in parts)
    return at, along


def _outputs(loss: FlatLoss, inputs: Tree) -> Callable[[dict[str, Tensor]], Tensor]:
    positional, named = arguments(mapped(Tensor.contiguous, cloned(inputs)))  # as GroupNorm needs them

    def at(weights: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(loss.model, weights, positional, named)
        return found

    return at


def _losses(loss: FlatLoss, outputs: Tensor, targets: Tree) -> Tensor:
    def alone(output: Tensor, target: Tree) -> Tensor:
        return loss.of_copies(output[None], mapped(lambda tensor: tensor[None], target))

    try:
        found: Tensor = vmap(alone)(outputs, targets)
    except RuntimeError:  # a loss that looks at the values of its arguments
        rows = zip(outputs.unbind(), split(targets, 1), strict=True)
        found = torch.stack([loss.of_copies(output[None], target) for output, target in rows])
    return found


def _first(f: Callable[[Any], Tensor], direction: Direction) -> tuple[Tensor, Tensor]:
    """Return f and its first derivative along a direction.

    The tangents are given as they are: the products of a step t and each of them PyTorch (2.13) would compute
    in Python, by a decomposition, since only one side has a tangent.
    """
    at, along = direction
    found: tuple[Tensor, Tensor] = jvp(f, (at,), (along,))  # type: ignore[assignment]
    return found


def _second(f: Callable[[Any], Tensor], direction: Direction) -> Tensor:
    """Return the second derivative of f along a direction."""
    return _first(lambda at: _first(f, (at, direction[1]))[1], direction)[1]
