"""Loss, λ_max and trace of one function at one point of weight space: a cell of the table of flatness gaps.

Cells pair: all begin Lanczos at the same vector and see the same probes, so that equal cells differ by
exactly 0, and cells on the same samples have differences with the differences' own errors (:mod:`.paired`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.one_round.eigenspaces import Eigenspace, eigenspace
from fedscope.landscape.heterogeneity.one_round.paired import Paired, Part, mean_of_batches
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.probes import Sampler, ended, probe_products, rademacher
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.data_error import told_by_sample
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.probe_tally import remainder
from fedscope.landscape.spectral.spectral_results import Eigenpairs
from fedscope.streams import torch_stream

Quantity = Literal["loss", "lambda_max", "trace"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
TOL, PROBES = 1e-2, 16


@dataclass(frozen=True, repr=False)
class LossAtWeights(Printed):
    """One function at one point; None what was not asked for."""

    loss: Paired | None
    lambda_max: Paired | None
    trace: Paired | None
    space: Eigenspace | None  # of the k largest eigenvectors
    converged: bool  # the eigenpairs have the residual that was asked for, and are certified
    matvecs: int

    def of(self, quantity: Quantity) -> Paired | None:
        found: Paired | None = getattr(self, quantity)
        return found


def cell(
    op: Operator,
    samples: str,
    *,
    losses: Tensor | None = None,
    quantities: Collection[Quantity] = QUANTITIES,
    k: int = 0,
    tol: float = TOL,
    probes: int = PROBES,
    sampler: Sampler = rademacher,
    seed: int = 0,
    progress: Progress | None = None,
) -> LossAtWeights:
    """Measure one function at one point.

    λ_max is biased upward on these samples: ``Eigenpairs.bias_data`` is its ``bias``, the residual its
    ``bound``. ``samples`` names the operator's set of samples, equal where numbers are to pair; ``losses``
    (B,) are each batch's mean loss. A sampler that ends makes the trace exact.
    """
    if "loss" in quantities and losses is None:
        raise UserError("the loss of a cell takes the losses of its batches")
    if "trace" in quantities and probes < 2:
        raise UserError(f"{probes} probes have no standard error; take at least 2")
    pairs = space = None
    spent = 0
    if k or "lambda_max" in quantities or "trace" in quantities:
        pairs = top_eigenpairs(
            op,
            k=max(k, 1),
            tol=tol,
            generator=torch_stream(seed, "lanczos"),
            by_sample=False,
            progress=progress,
        )
        spent = pairs.matvecs
    if pairs and k and bool(pairs.values.isfinite().all()):
        space = eigenspace(op, pairs, k=k, samples=samples)
        spent += space.matvecs
    trace = None
    if pairs and "trace" in quantities:
        trace, products = _trace(
            op, samples, pairs.subspace, probes, sampler, seed, continued(progress, spent)
        )
        spent += products
    return LossAtWeights(
        loss=mean_of_batches(op, samples, losses) if "loss" in quantities and losses is not None else None,
        lambda_max=_largest(op, samples, pairs) if pairs and "lambda_max" in quantities else None,
        trace=trace,
        space=space,
        converged=pairs is None or (pairs.converged and bool(pairs.certified.all())),
        matvecs=spent,
    )


def _largest(op: Operator, samples: str, pairs: Eigenpairs) -> Paired:
    top = told_by_sample(op, pairs.some(torch.tensor([0])))
    value, bound = float(top.values), float(top.residuals)
    if top.forms is None or op.weights is None:
        return Paired(value, {}, bound=bound)
    forms, sizes = top.forms, op.weights
    if top.samples is not None:
        forms, sizes = top.samples, (1,) * top.samples.shape[1]
    part = Part(forms.double().cpu(), sizes, op.finite_population).scaled(float(top.stderr_data))
    return Paired(value, {samples: part}, bias=float(top.bias_data), bound=bound + float(top.stderr_bias))


def _trace(
    op: Operator,
    samples: str,
    known: Subspace | None,
    probes: int,
    sampler: Sampler,
    seed: int,
    progress: Progress | None,
) -> tuple[Paired, int]:
    vectors: Iterator[Tensor] = sampler(op.shape[0], torch_stream(seed, "trace"), op.dtype, op.device)
    values, forms = [], []
    exact = known.trace if known else 0.0
    of_batches = (
        0.0 if known is None or known.batches is None else known.batches.diagonal(dim1=1, dim2=2).sum(1)
    )
    for z, product in probe_products(remainder(op, known), vectors, probes):
        values.append(exact + float(z.double() @ product.vector.double()))
        if product.forms is not None:
            forms.append(product.forms.cpu() + of_batches)
        del z, product  # a block stays as long as one of its probes does
        if progress:
            progress(len(values), probes)
    if len(forms) < len(values) or (known is not None and known.batches is None):
        rows = torch.tensor(values, dtype=torch.float64)[:, None]
        sizes: tuple[int, ...] = (1,)
        factor = 1.0
    else:
        rows, sizes, factor = torch.stack(forms), op.weights or (), op.finite_population
    if ended(vectors):
        rows = rows.mean(0, keepdim=True)
    return Paired(sum(values) / len(values), {samples: Part(rows, sizes, factor)}), len(values)
