"""How many products the trace of a network's Hessian costs, by estimator.

    python benchmarks/traces.py RUN.pt [--samples 250] [--data-dir DIR] [--rtol 0.01] [--sketch 32]

The deflated estimate stops at the standard error asked for; plain Hutchinson's products for it are told from
the variance of 32 probes. Of Hutch++ (Meyer, Musco, Musco and Woodruff 2021) and XTrace (Epperly, Tropp and
Webber 2024) the standard error after given products is printed, and of Hutch++ also what its sketch would
have to be followed by to reach the error asked for.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import Tensor

from fedscope.landscape import Estimate, Hessian, Operator, top_eigenpairs, trace
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source

BLOCK = 8


def products(op: Operator, rows: Tensor) -> Tensor:
    """Return A rowsᵀ as rows, in float64."""
    blocks = [op.products(block) for block in rows.split(BLOCK)]
    return torch.stack([product.vector.double() for block in blocks for product in block])


def signs(op: Operator, count: int, generator: torch.Generator) -> Tensor:
    """Return ±1 rows (count, n)."""
    draw = torch.randint(2, (count, op.shape[0]), generator=generator)
    return (2 * draw - 1).to(op.dtype)


def orthonormal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q and R of rows = Rᵀ Q."""
    q, r = torch.linalg.qr(rows.T)
    return q.T.contiguous(), r


def hutchpp(op: Operator, sketch: int, probes: int, generator: torch.Generator) -> Estimate:
    """Estimate the trace by algorithm 1 of Meyer et al.: 2·sketch + probes products."""
    basis, _ = orthonormal(products(op, signs(op, sketch, generator)))
    exact = float((basis * products(op, basis.to(op.dtype))).sum())
    z = signs(op, probes, generator).double()
    rest = z - (z @ basis.T) @ basis
    forms = (rest * products(op, rest.to(op.dtype))).sum(1)
    return Estimate(exact + float(forms.mean()), float(forms.std() / math.sqrt(probes)), probes - 1)


def xtrace(op: Operator, sketch: int, generator: torch.Generator) -> Estimate:
    """Estimate the trace by section 2.1 of Epperly et al.: 2·sketch products.

    Each probe is the residual's once while the others make the basis, which is theirs less the direction s
    that its product alone adds.
    """
    z = signs(op, sketch, generator).double()
    images = products(op, z.to(op.dtype))
    basis, triangle = orthonormal(images)
    basis_images = products(op, basis.to(op.dtype))
    inner = basis @ basis_images.T
    s = torch.linalg.inv(triangle)  # rows: of Rᵀ's inverse the columns
    s = s / s.norm(dim=1, keepdim=True)
    onto = z @ basis.T
    onto = onto - s * (s * onto).sum(1, keepdim=True)
    without = inner.trace() - torch.einsum("ki,ij,kj->k", s, inner, s)
    forms = (z * images).sum(1) - 2 * (onto * (images @ basis.T)).sum(1)
    each = without + forms + torch.einsum("ki,ij,kj->k", onto, inner, onto)
    return Estimate(float(each.mean()), float(each.std() / math.sqrt(sketch)), sketch - 1)


def main() -> None:
    """Print one JSON line per estimator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=125)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rtol", type=float, default=0.01)
    parser.add_argument("--sketch", type=int, default=32)
    options = parser.parse_args()
    source = Source(samples=options.samples, data_dir=options.data_dir, batch_size=options.batch_size)
    (problem,) = load([options.checkpoint], source)
    op = Hessian(problem.model, problem.loss_fn, problem.batches)

    def told(name: str, matvecs: float, value: float, stderr: float) -> None:
        line = {"estimator": name, "products": round(matvecs), "trace": value, "stderr": stderr}
        print(json.dumps(line), flush=True)

    top = top_eigenpairs(op, tol=1e-3)
    told("λ_max alone (its value, its residual)", top.matvecs, float(top.values[0]), float(top.residuals[0]))
    for name, known in (("deflated, after λ_max", top.subspace), ("deflated, alone", None)):
        found = trace(op, known=known, rtol=options.rtol, max_probes=10**4)
        told(name, found.matvecs, found.value, found.stderr_probe)
    goal = options.rtol * found.value
    first = trace(op, probes=32)
    told("Hutchinson, from 32", 32 * (first.stderr_probe / goal) ** 2, first.value, goal)
    for sketch in (options.sketch // 2, options.sketch):
        crossed = xtrace(op, sketch, torch.Generator().manual_seed(1))
        told("XTrace", 2 * sketch, crossed.value, crossed.stderr)
        plus = hutchpp(op, sketch, options.sketch, torch.Generator().manual_seed(1))
        told("Hutch++", 2 * sketch + options.sketch, plus.value, plus.stderr)
        needed = 2 * sketch + options.sketch * (plus.stderr / goal) ** 2
        told(f"Hutch++ with a sketch of {sketch}, to the goal", needed, plus.value, goal)


if __name__ == "__main__":
    main()
