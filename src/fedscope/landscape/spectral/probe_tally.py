"""The running trace estimate of a series of probes, beside the exact part of a subspace.

For independent ±1 entries Var zᵀRz = 2 Σ_{i≠j} R_ij² = 2 Σ_i Var (z ⊙ Rz)_i, so that the n coordinates of few
products tell the variance, where the values zᵀRz themselves would leave it unknown by a factor: with
d = z ⊙ Rz, ‖d‖ = ‖Rz‖ and M probes,

    s² = 2 (M Σ‖d‖² − ‖Σd‖²) / (M (M − 1)).

Its own error is nearly that of the mean of 2‖Rz‖², and gives its degrees of freedom (Satterthwaite 1946).
"""

import math

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.basis.krylov_basis import Remainder, Subspace
from fedscope.landscape.operators.basis.row_space import WHOLE
from fedscope.landscape.spectral.spectral_results import Trace
from fedscope.statistics.standard_errors import batches_freedom, drawn_stderr, probed_data_error


def remainder(op: Operator, known: Subspace | None) -> Operator:
    return op if known is None else Remainder(op, known.rows)


class TraceTally:
    """tr A = tr QAQᵀ + mean of zᵀRz, and the batches' shares of it.

    Symbols: M probes z, B batches, R the remainder.
    """

    def __init__(self, op: Operator, known: Subspace | None, *, signs: bool) -> None:
        self.known, self._op = known, op
        self._signs = signs  # probes of independent ±1 entries
        self._weights, self._finite = op.weights, op.finite_population
        self._forms: list[float] = []  # M values zᵀRz
        self._squares: list[float] = []  # M values ‖Rz‖²
        self._sum = torch.zeros(op.shape[0], dtype=torch.float64, device=op.device)  # of z ⊙ Rz
        self._batches: list[Tensor] = []  # M × (B,): the batches' traces, as each probe estimates them
        self._variance: tuple[float, float] | None = None  # of zᵀRz, and its degrees of freedom
        self._errors: list[float] = []  # of each zᵀRz
        self._samples: Tensor | None = None  # (N,): each sample's zᵀH_i z of the first probe

    @property
    def probes(self) -> int:
        return len(self._forms)

    @property
    def error(self) -> float:
        """A bound on what the products' own errors have moved the estimate by."""
        known = self.known
        exact_part = math.sqrt(len(known.rows)) * known.error if known else 0.0  # |tr M| ≤ √m·‖M‖_F
        errors = torch.tensor(self._errors, dtype=torch.float64)  # signed: those of rounding cancel
        return exact_part + abs(float(errors.mean())) + 3 * float(errors.norm()) / len(errors)

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self._forms[-1:]))

    @property
    def mean(self) -> float:
        return (self.known.trace if self.known else 0.0) + sum(self._forms) / self.probes

    @property
    def text(self) -> str:
        variance, _ = self._variance or self._spread()
        return f"{self.mean:.5g} ± {math.sqrt(variance / self.probes):.2g}"

    def add(self, z: Tensor, product: Product) -> None:
        self._count(z, product.vector)
        self._errors.append(product.form_error)
        if self.probes == 1 and product.forms is not None and len(product.forms) > 1:
            self._samples = self._op.sample_forms(z)
        if product.forms is not None and self.known is None:
            self._batches.append(product.forms.cpu())
        elif product.forms is not None and self.known and self.known.batches is not None:
            self._batches.append(product.forms.cpu() + self.known.batches.diagonal(dim1=1, dim2=2).sum(1))

    def deflate(self, known: Subspace, probes: Tensor, images: Tensor) -> None:
        """Enlarge the known subspace: ``images`` (M, n) are all probes' products with the new remainder."""
        self.known, self._forms, self._squares = known, [], []
        self._sum.zero_()
        for z, image in zip(probes, images, strict=True):
            self._count(z, image)

    def fix_variance(self) -> None:
        self._variance = self._spread()

    def needed(self, rtol: float) -> float:
        """Return the probes for a standard error of rtol·|mean|; 0 where the variance is 0 or not known."""
        variance, _ = self._variance or self._spread()
        goal = (rtol * self.mean) ** 2
        if not variance > 0:
            return 0
        return math.ceil(variance / goal) if goal > 0 else math.inf

    def result(self, *, exact: bool, seed: int, steps: int = 0) -> Trace:
        """Return the estimate; ``exact``: by a complete set of probes; ``steps``: products spent on
        ``known``.
        """
        variance, dof = (0.0, math.inf) if exact else (self._variance or self._spread())
        known = self.known.trace if self.known else 0.0
        stderr_data, dof_data = math.nan, math.nan
        if self._batches:
            batches = torch.stack(self._batches)
            stderr_data, dof_data = probed_data_error(
                batches.mean(0)[None] if exact else batches, self._weights
            )
            stderr_data = drawn_stderr(stderr_data, self._finite)
            if self._samples is not None and math.isfinite(dof_data):
                dof_data = min(dof_data, batches_freedom(batches.shape[1], self._samples))
        return Trace(
            value=self.mean,
            stderr_probe=math.sqrt(variance / self.probes),
            stderr_data=stderr_data,
            probes=self.probes,
            matvecs=self.probes + steps,
            seed=seed,
            dof_probe=dof,
            dof_data=dof_data,
            deflated=len(self.known.rows) if self.known else 0,
            samples=tuple(known + form for form in self._forms),
            batches=tuple(torch.stack(self._batches).mean(0).tolist()) if self._batches else (),
            error=self.error,
        )

    def _count(self, z: Tensor, image: Tensor) -> None:
        form = square = 0.0
        for sum_, own, product in zip(*(v.split(WHOLE) for v in (self._sum, z, image)), strict=True):
            sample = own.double() * product
            form, square = form + float(sample.sum()), square + float(sample @ sample)
            sum_ += sample
        self._forms.append(form)
        self._squares.append(square)

    def _spread(self) -> tuple[float, float]:
        count = self.probes
        if count < 2:
            return math.nan, 0
        if not self._signs:
            return float(torch.tensor(self._forms, dtype=torch.float64).var()), count - 1
        squares = torch.tensor(self._squares, dtype=torch.float64)
        together = count * squares.sum() - self._sum.cpu() @ self._sum.cpu()
        variance = float((2 * together / (count * (count - 1))).clamp(min=0))
        error = 4 * float(squares.var()) / count
        return variance, max(count - 1, 2 * variance**2 / error) if error > 0 else math.inf
