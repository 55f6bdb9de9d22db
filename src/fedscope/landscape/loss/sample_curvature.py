"""Each sample's own curvature along a direction: vᵀH_i v, by derivatives in forward mode and no gradient.

With ℓ_i(t) the loss of sample i at w + t·v, the Hessian's form is ℓ_i''(0), the empirical Fisher's ℓ_i'(0)²,
and the generalised Gauss–Newton's ℓ_i'' of the outputs' linear part in t. The loss of a batch must be the
mean of what it is for each sample alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, jvp, vmap

from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.trees import Tree, arguments, cloned, mapped, split

Along = Callable[[Tensor], Tensor]
"""t () ↦ the losses (n,) of the samples, or the outputs."""


def hessian_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return vᵀH_i v (n,) of a batch's samples, for a (n_parameters,) vector v."""
    outputs, targets = _outputs(loss, inputs, v), cloned(targets)
    return _second(lambda t: _losses(loss, outputs(t), targets), v)


def gauss_newton_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return vᵀJ_iᵀH_f J_i v (n,)."""
    (at, slope), targets = _first(_outputs(loss, inputs, v), v), cloned(targets)
    return _second(lambda t: _losses(loss, at + t * slope, targets), v)


def fisher_forms(loss: FlatLoss, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
    """Return (g_iᵀv)² (n,)."""
    outputs, targets = _outputs(loss, inputs, v), cloned(targets)
    return _first(lambda t: _losses(loss, outputs(t), targets), v)[1].square()


def drawn_forms(loss: FlatLoss, inputs: Tree, residuals: Along, v: Tensor) -> Tensor:
    """Return n·mean_s (r_isᵀJ_i v)² (n,) for residuals (n, S, …) as a function of the outputs (n, …)."""
    at, slope = _first(_outputs(loss, inputs, v), v)
    along = residuals(at) * slope[:, None]
    return len(at) * along.reshape(*along.shape[:2], -1).sum(2).square().mean(1)


def _outputs(loss: FlatLoss, inputs: Tree, v: Tensor) -> Along:
    center, direction = loss.split(loss.center), loss.split(loss.moving(v))
    positional, named = arguments(mapped(Tensor.contiguous, cloned(inputs)))  # as GroupNorm needs them

    def at(t: Tensor) -> Tensor:
        moved = {name: w + t * d for name, w, d in zip(loss.names, center, direction, strict=True)}
        found: Tensor = functional_call(loss.model, moved, positional, named)
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


def _first(f: Along, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(0) and f'(0)."""
    found: tuple[Tensor, Tensor] = jvp(f, (like.new_zeros(()),), (like.new_ones(()),))  # type: ignore[assignment]
    return found


def _second(f: Along, like: Tensor) -> Tensor:
    """Return f''(0)."""
    return _first(lambda t: jvp(f, (t,), (torch.ones_like(t),))[1], like)[1]
