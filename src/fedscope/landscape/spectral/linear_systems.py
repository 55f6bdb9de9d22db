"""Linear systems (A + c·1) x = b by conjugate gradients or MINRES, to a residual that is measured at the end.

Conjugate gradients (Hestenes and Stiefel 1952) need a positive definite matrix; MINRES (Paige and Saunders
1975) takes any symmetric one, and of an inconsistent system gives the x of least residual. Vectors and inner
products are in float64, products in the operator's dtype. What an iteration believes its residual to be
drifts from the truth by rounding. So where it believes to have arrived the residual is computed, and if it is
too large, the iteration begins anew with it (iterative refinement), until that no longer halves it.

Symbols: r residual, p direction, v Lanczos vectors with diagonal δ and couplings γ, c and s rotations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedscope.choices import AtMost
from fedscope.errors import UserError
from fedscope.landscape.loss.checks import slack
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.printing import Printed

SolveMethod = Literal["cg", "minres"]
_Times = Callable[[Tensor], Tensor]
_Seen = Callable[[float], None]


@dataclass(frozen=True, repr=False)
class Solution(Printed):
    """What solves a linear system, and how well."""

    x: Tensor  # (n,) in the operator's dtype
    residual: float  # ‖b − (A + c·1) x‖ of this x, computed by a product at the end
    relative: float  # the residual relative to ‖b‖; 0 for b = 0
    converged: bool  # the relative residual is at most ``rtol``
    iterations: int  # steps
    matvecs: int  # products: one for each step, and one for each residual
    method: SolveMethod
    damping: float


def solve(
    op: Operator,
    b: Tensor,
    *,
    method: SolveMethod = "cg",
    damping: float = 0.0,
    rtol: float = 1e-5,
    max_matvecs: int = 1000,
    progress: Progress | None = None,
) -> Solution:
    """Solve (A + c·1) x = b for a symmetric operator A, to ‖b − (A + c·1) x‖ ≤ rtol·‖b‖.

    Ends earlier where ``max_matvecs`` products are spent, or rounding in the products leaves no smaller
    residual: then ``converged`` is False, and ``residual`` says how far it came. The error of x is at most
    the residual over the smallest size of an eigenvalue. After a product that is not finite x is NaN.

    Args:
        op: symmetric operator.
        b: (n,) right-hand side; tensors by name become one by ``op.flatten``.
        method: ``cg`` for a positive definite A + c·1; ``minres`` for any, also an indefinite one.
        damping: c, at no further product.
        rtol: the residual wanted, relative to ‖b‖.
        max_matvecs: products allowed, at least 2.
        progress: called after every step, with no known total.

    Raises:
        UserError: b has another shape or is not finite, an argument is out of range, or conjugate gradients
            met a direction of no positive curvature.
    """
    n, known = op.shape[0], get_args(SolveMethod)
    if b.shape != (n,):
        raise UserError(f"b has shape {tuple(b.shape)}; expected ({n},)")
    if not bool(b.isfinite().all()):
        raise UserError("b is not finite; repair it first")
    if method not in known:
        raise UserError(f"method is {method!r}; choose one of {', '.join(known)}")
    if not 0 < rtol < 1 or max_matvecs < 2:
        raise UserError(f"rtol is {rtol} and max_matvecs {max_matvecs}; give 0 < rtol < 1 and 2 or more")
    damped = op.damped(damping) if damping else op
    wanted = b.to(op.device, torch.float64)
    run = _SolveRun(damped, rtol * float(wanted.norm()), max_matvecs, method, progress)
    x, residual = run.solved(wanted)
    return Solution(
        x=x,
        residual=residual,
        relative=residual / float(wanted.norm()) if residual else 0.0,
        converged=residual <= run.goal,
        iterations=run.iterations,
        matvecs=run.matvecs,
        method=method,
        damping=damping,
    )


class _SolveRun:
    """Products that are counted, and the starts of an iteration until the true residual is small enough."""

    def __init__(
        self, op: Operator, goal: float, most: int, method: SolveMethod, progress: Progress | None
    ) -> None:
        self._op, self.goal, self._most, self._method, self._progress = op, goal, most, method, progress
        self._noise = max(slack(op.dtype), torch.finfo(torch.float64).eps ** 0.5)
        self.matvecs = self.iterations = 0

    def solved(self, b: Tensor) -> tuple[Tensor, float]:
        x, rest = torch.zeros_like(b, dtype=self._op.dtype), b
        residual = float(rest.norm())
        early = self._method == "cg"  # its residuals may grow before they fall, while x gets better
        while residual > self.goal and (room := self._most - self.matvecs - 1) > 0:
            change = _STEPS[self._method](self._times, rest, self.goal, room, self._seen, self._noise)
            better = (x.double() + change).to(x.dtype)
            remaining = b - self._times(better)
            before, found = residual, float(remaining.norm())
            if early or not found >= before:  # smaller, or not a number
                x, rest, residual, early = better, remaining, found, False
            if not found <= before / 2:
                break
        return x, residual

    def _times(self, v: Tensor) -> Tensor:
        self.matvecs += 1
        return self._op.matvec(v).double()

    def _seen(self, residual: float) -> None:
        self.iterations += 1
        if self._progress:
            self._progress(
                self.matvecs, AtMost(self._most), f"residual {residual:.1e} (asked: {self.goal:.1e})"
            )


_Steps = Callable[[_Times, Tensor, float, int, _Seen, float], Tensor]
"""(A·, b, the residual wanted, most products, called after each step, rounding) ↦ x (n,) float64."""


def _conjugate_gradients(
    times: _Times, b: Tensor, goal: float, most: int, seen: _Seen, noise: float
) -> Tensor:
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    square = float(r @ r)
    for step in range(1, most + 1):
        image = times(p)
        curvature = float(p @ image)
        if curvature <= 0:
            raise UserError(
                f"in step {step} conjugate gradients met a direction of curvature "
                f"{curvature / float(p @ p):.3g}, so that the matrix is not positive definite: take "
                "method='minres', or a damping above −λ_min (top_eigenpairs(H, which='smallest'))"
            )
        along = square / curvature
        x.add_(p, alpha=along)
        r.sub_(image, alpha=along)
        before, square = square, float(r @ r)
        seen(math.sqrt(square))
        if not square > goal**2:
            break
        p.mul_(square / before).add_(r)
    return x


def _minres(times: _Times, b: Tensor, goal: float, most: int, seen: _Seen, noise: float) -> Tensor:
    """Follow Elman, Silvester and Wathen (2014), algorithm 2.4."""
    x, v_before, v = torch.zeros_like(b), torch.zeros_like(b), b.clone()
    w_before, w = torch.zeros_like(b), torch.zeros_like(b)
    gamma = eta = float(b.norm())
    c_before, c, s_before, s, size = 1.0, 1.0, 0.0, 0.0, 0.0
    for _ in range(most):
        v.div_(gamma)
        image = times(v)
        delta = float(v @ image)
        following = image.sub_(v, alpha=delta).sub_(v_before, alpha=gamma)
        coupling = float(following.norm())
        if not math.isfinite(coupling):
            return x.fill_(math.nan)
        size = max(size, math.hypot(delta, coupling))  # of the matrix
        # Of the matrix [T; γ eᵀ], the next column after the two last rotations, and the next rotation.
        diagonal = c * delta - c_before * s * gamma
        above, top = s * delta + c_before * c * gamma, s_before * gamma
        rotated = math.hypot(diagonal, coupling)
        # ‖A r‖ = |η|·hypot(…): where it vanishes b is outside the range, and r is as small as it gets.
        if not math.hypot(diagonal, c * coupling) > noise * size:
            seen(abs(eta))
            break
        direction = v.sub(w_before, alpha=top).sub_(w, alpha=above).div_(rotated)
        c_before, c, s_before, s = c, diagonal / rotated, s, coupling / rotated
        x.add_(direction, alpha=c * eta)
        eta *= -s
        seen(abs(eta))
        if not abs(eta) > goal:
            break
        v_before, v, w_before, w, gamma = v, following, w, direction, coupling
    return x


_STEPS: dict[SolveMethod, _Steps] = {"cg": _conjugate_gradients, "minres": _minres}
