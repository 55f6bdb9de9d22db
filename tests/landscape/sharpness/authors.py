"""The algorithm of Andriushchenko et al.'s program (tml-epfl/sharpness-vs-generalization), in our own words.

Written from its behaviour, tensor by tensor on the network and by ``backward``, with none of our parts: every
batch begins at δ = 0; the gradient's norm is that of all tensors; the multiplier of the ellipsoid is found by
bisection; the step halves at the checkpoints.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]


def worst_rise(
    net: nn.Module, loss: Loss, x: Tensor, y: Tensor, rho: float, linf: bool, adaptive: bool, steps: int
) -> float:
    """Return the largest rise of one batch's loss that the program finds."""
    own = [p.detach().clone() for p in net.parameters()]
    scale = [w.abs() if adaptive else torch.ones_like(w) for w in own]
    delta = [torch.zeros_like(w) for w in own]
    previous = [d.clone() for d in delta]
    marks = _marks(steps)
    with torch.no_grad():
        start = float(loss(net(x), y))
    worst, worst_at, wins = start, [w.clone() for w in own], 0
    step, old_step, old_worst, old_mark = 2 * rho, 2 * rho, start, 0
    for i in range(steps):
        net.zero_grad()
        loss(net(x), y).backward()
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in net.parameters()]
        here = [d.clone() for d in delta]
        if linf:
            delta = [
                (d + step * g.sign() * s).clamp(-rho * s, rho * s)
                for d, g, s in zip(delta, grads, scale, strict=True)
            ]
        else:
            size = sum(float(g.norm()) ** 2 for g in grads) ** 0.5
            delta = [d + step / (size + 1e-12) * g * s for d, g, s in zip(delta, grads, scale, strict=True)]
            delta = _into_ellipsoid(delta, scale, rho)
        delta = [0.75 * d + 0.25 * p for d, p in zip(delta, previous, strict=True)]
        previous = here
        with torch.no_grad():
            for p, w, d in zip(net.parameters(), own, delta, strict=True):
                p.copy_(w + d)
            now = float(loss(net(x), y))
        if now > worst:
            worst, worst_at, wins = now, [p.detach().clone() for p in net.parameters()], wins + 1
        if i in marks:
            few, still = wins < 0.75 * (i - old_mark), old_step == step and old_worst == worst
            old_step, old_worst, old_mark, wins = step, worst, i, 0
            if few or still:
                step *= 0.5
                with torch.no_grad():  # the weights go back, the perturbation does not
                    for p, w in zip(net.parameters(), worst_at, strict=True):
                        p.copy_(w)
    with torch.no_grad():
        for p, w in zip(net.parameters(), own, strict=True):
            p.copy_(w)
    return worst - start


def _marks(steps: int) -> set[int]:
    shares, marks = [0.0, 0.22], [0, math.ceil(steps * 0.22)]
    while marks[-1] < steps and marks[-1] != marks[-2]:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
        marks.append(math.ceil(shares[-1] * steps))
    return set(marks[1:])


def _into_ellipsoid(delta: list[Tensor], scale: list[Tensor], rho: float) -> list[Tensor]:
    def moved(mu: float) -> list[Tensor]:
        return [d / (1 + mu / s**2) for d, s in zip(delta, scale, strict=True)]

    def size(parts: list[Tensor]) -> float:
        return math.sqrt(sum(float(((d / s) ** 2).sum()) for d, s in zip(parts, scale, strict=True)))

    if size(delta) <= rho:
        return delta
    if all(bool((s == 1).all()) for s in scale):  # the ball: a rescaling
        return [d * rho / size(delta) for d in delta]
    low, high = 0.0, 1.0
    while size(moved(high)) > rho:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if size(moved(middle)) > rho else (low, middle)
    return moved(high)


def average_rise(
    net: nn.Module, loss: Loss, x: Tensor, y: Tensor, noises: list[Tensor], rho: float, adaptive: bool
) -> float:
    """Return the mean rise of the loss over these draws of all weights, scaled by its weight if adaptive."""
    own = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        start, total = float(loss(net(x), y)), 0.0
        for noise in noises:
            pieces = noise.split([w.numel() for w in own])
            for p, w, z in zip(net.parameters(), own, pieces, strict=True):
                p.copy_(w + rho * (w.abs() if adaptive else 1) * z.view_as(w))
            total += float(loss(net(x), y))
        for p, w in zip(net.parameters(), own, strict=True):
            p.copy_(w)
    return total / len(noises) - start
