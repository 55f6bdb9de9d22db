"""Top eigenspaces of Hessians, and which share of given vectors lies in them, with its error over the
samples.

The share ‖Px‖² of a vector x in the space of the k largest eigenvectors is no mean over samples. Leave one
batch out and H, its eigenvectors and the share move; the delete-one jackknife has the error from that. It
costs a product for each x: with x itself in the basis beside the Krylov process' own vectors, what moves is
found in a matrix of a few dozen rows. What is left out moves the share in second order only.

Two spaces with orthonormal columns A and B overlap by ‖AᵀB‖_F²/k, the mean share of B's columns in A's
space (as :mod:`fedscope.landscape.spectral.subspace_overlap` has it); its error has a part from either side.

How an update Δ_k = w_k − w_start lies to the curvature: along it this is ΔᵀHΔ/‖Δ‖², between the least
eigenvalue and λ_max, where a random direction has tr H/n; its share on top is ‖P_kΔ‖²/‖Δ‖² (Gur-Ari, Roberts
and Dyer 2018, section 2, for gradients), where a random direction has k/n.

Symbols: n coordinates, k eigenvectors, r rows of a basis, B batches, K spaces.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.one_round.paired import (
    Paired,
    mean_of_batches,
    merged,
    statistic,
    total,
)
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.spectral_results import Eigenpairs
from fedscope.statistics.standard_errors import data_stderr

KEPT = 16  # vectors of a Krylov process, at least, that are kept beside the eigenvectors
STEPS = 2  # products of the operator with each vector that are added to the basis
_DEPENDENT = 1e-4  # of a unit vector, what counts as nothing beyond the basis


@dataclass(frozen=True, repr=False)
class Eigenspace(Printed):
    """The k largest eigenvectors of an operator, and what tells how the samples move them."""

    samples: str  # the name of the set of samples
    k: int
    rows: Tensor  # (r, n) orthonormal, in the operator's dtype: the k eigenvectors first
    batches: Tensor | None  # (B, r, r) float64: rows A_b rowsᵀ; None where batches are not known
    weights: tuple[int, ...] = ()  # (B,) samples of the batches
    matvecs: int = 0  # products beyond those of the eigenpairs

    @property
    def vectors(self) -> Tensor:
        return self.rows[: self.k].T

    @property
    def separation(self) -> float:
        """How many standard errors, over the samples, the k-th eigenvalue lies above the next one.

        Of few, the draw of samples decides which vectors are in the space, and the errors of shares and
        overlaps are too small: in the first order that they are of, an eigenvector turns but does not
        change places. NaN where it is not known.
        """
        if self.batches is None or len(self.rows) <= self.k:
            return math.nan
        shares = torch.tensor(self.weights, dtype=torch.float64)
        whole = torch.einsum("b,bij->ij", shares / shares.sum(), self.batches)
        values, vectors = torch.linalg.eigh(whole)
        forms = torch.einsum("ik,bij,jk->kb", vectors, self.batches, vectors)
        last, following = len(values) - self.k, len(values) - self.k - 1
        stderr = data_stderr(forms[last] - forms[following], self.weights)
        return float(values[last] - values[following]) / stderr if stderr > 0 else math.inf


def eigenspace(op: Operator, pairs: Eigenpairs, *, k: int, samples: str, kept: int = KEPT) -> Eigenspace:
    if not 1 <= k <= len(pairs.values):
        raise UserError(f"a space of {k} eigenvectors cannot be made of {len(pairs.values)}; ask for more")
    top = pairs.vectors[:, :k].T.contiguous()
    known = pairs.subspace
    if known is None or known.batches is None or op.weights is None:
        return Eigenspace(samples, k, top, None)
    theta, s = torch.linalg.eigh(known.projected)
    order = theta.abs().argsort(descending=True)[: max(kept, k) + k]
    order = torch.cat([torch.arange(len(theta) - min(k, len(theta)), len(theta)), order]).unique()
    held = known.basis
    basis = s[:, order].T.to(held) @ held
    batches = torch.einsum("ri,brs,sj->bij", s[:, order], known.batches, s[:, order])
    rows, parts, spent = _extended(op, basis, batches, top)
    coefficients = (top.double() @ rows.double().T).cpu()
    frame, _ = torch.linalg.qr(torch.cat([coefficients, torch.eye(len(rows), dtype=torch.float64)]).T)
    signs = torch.where((frame[:, :k].T * coefficients).sum(1) < 0, -1.0, 1.0).double()
    frame[:, :k] *= signs
    turned = (frame.T.to(rows.device) @ rows.double()).to(rows.dtype)
    turned_parts = torch.einsum("ri,brs,sj->bij", frame, parts, frame)
    return Eigenspace(samples, k, turned, turned_parts, op.weights, spent)


def captured(op: Operator, space: Eigenspace, vectors: Tensor) -> tuple[list[Paired], int]:
    """Return ‖Px‖² of each of m unit vectors x (m, n) in a space of ``op``, and the products that it took."""
    x = vectors.to(op.device, op.dtype)
    values = (x.double() @ space.rows[: space.k].double().T).square().sum(1).clamp(max=1)
    if space.batches is None or op.weights is None:
        return [Paired(float(value), {}, low=0, high=1) for value in values], 0
    rows, parts, spent = _extended(op, space.rows, space.batches, x, STEPS)
    onto = (x.double() @ rows.double().T).cpu()  # (m, r)
    counts = torch.tensor(op.weights, dtype=torch.float64)
    shares = counts / counts.sum()
    whole = torch.einsum("b,bij->ij", shares, parts)
    at = _squares(whole, onto, space.k)
    left = torch.stack([
        _squares(whole - share * part, onto, space.k) for share, part in zip(shares, parts, strict=True)
    ])  # fmt: skip
    found = [
        statistic(op, space.samples, float(values[i]), left[:, i] - at[i], low=0, high=1)
        for i in range(len(x))
    ]
    return found, spent


@dataclass(frozen=True, repr=False)
class Alignment(Printed):
    """One update and one Hessian."""

    length: float  # ‖Δ‖
    rayleigh: Paired  # ΔᵀHΔ/‖Δ‖²
    share: Paired | None  # ‖P_kΔ‖²/‖Δ‖²; None without an eigenspace
    k: int
    random: float  # the share k/n of a random direction
    matvecs: int


def update_alignment(op: Operator, space: Eigenspace | None, update: Tensor, *, samples: str) -> Alignment:
    wide = update.to(op.device).double()
    length = float(wide.norm())
    if not 0 < length < float("inf"):
        raise UserError(f"an update of length {length:g} has no direction: the client did not move")
    unit = (wide / length).to(op.dtype)
    product = op.product(unit)
    value = float(unit.double() @ product.vector.double())
    known = product.forms is not None
    forms = product.forms if product.forms is not None else product.vector.new_tensor([value])
    rayleigh = mean_of_batches(op, samples, forms, value) if known else Paired(value, {})
    share, spent = None, 1
    if space:
        (share,), products = captured(op, space, unit[None])
        spent += products
    k = space.k if space else 0
    return Alignment(length, rayleigh, share, k, k / op.shape[0], spent)


def overlaps(
    operators: Iterable[Operator], spaces: Sequence[Eigenspace]
) -> tuple[list[list[Paired | None]], int]:
    """Return the K × K overlaps of all pairs of K spaces, None of one with itself; and the products taken."""
    sizes = {(space.k, space.rows.shape[1]) for space in spaces}
    if len(sizes) > 1:
        raise UserError(f"spaces of different dimensions, {sorted(sizes)}, have no overlap")
    k, spent = spaces[0].k, 0
    sides: dict[tuple[int, int], Paired] = {}
    for i, op in enumerate(operators):
        others = [j for j in range(len(spaces)) if j != i]
        found, products = captured(op, spaces[i], torch.cat([spaces[j].vectors.T for j in others]))
        spent += products
        for place, j in enumerate(others):
            mine = total([(1 / k, one) for one in found[place * k : (place + 1) * k]])
            sides[i, j] = Paired(min(mine.value, 1.0), mine.parts, mine.bias, low=0, high=1)
    every = range(len(spaces))
    both = {(i, j): merged(sides[i, j], sides[j, i]) for i in every for j in range(i + 1, len(spaces))}
    return [[None if i == j else both[min(i, j), max(i, j)] for j in every] for i in every], spent


def _squares(matrix: Tensor, onto: Tensor, k: int) -> Tensor:
    """Return ‖U onto_i‖² (m,) for the k largest eigenvectors U of a small matrix."""
    vectors = torch.linalg.eigh(matrix).eigenvectors[:, -k:]
    found: Tensor = (onto @ vectors).square().sum(1)
    return found


def _extended(
    op: Operator, basis: Tensor, batches: Tensor, vectors: Tensor, steps: int = 1
) -> tuple[Tensor, Tensor, int]:
    """Return basis (r, n) and batches (B, r, r) with what (m, n) vectors have beyond, and the products.

    With more ``steps`` their products by the operator are added in turn, as in a block Krylov process.
    """
    spent = 0
    for _ in range(steps):
        fresh = _beyond(basis, vectors)
        if not len(fresh):
            break
        every, r = torch.cat([basis, fresh]), len(basis)
        products = [op.product(row, onto=every) for row in fresh]
        onto = torch.stack([one.onto for one in products if one.onto is not None], 1).cpu()  # (B, e, r + e)
        joined = torch.zeros(len(batches), len(every), len(every), dtype=torch.float64)
        joined[:, :r, :r] = batches
        joined[:, r:, :] = onto
        joined[:, :r, r:] = onto[:, :, :r].mT
        joined[:, r:, r:] = (onto[:, :, r:] + onto[:, :, r:].mT) / 2
        basis, batches, spent = every, joined, spent + len(fresh)
        vectors = torch.stack([one.vector / one.vector.norm() for one in products])
    return basis, batches, spent


def _beyond(basis: Tensor, vectors: Tensor) -> Tensor:
    """Return orthonormal rows of what unit vectors have beyond an orthonormal basis."""
    wide, beyond = basis.double(), vectors.double()
    for _ in range(2):  # twice is enough
        beyond = beyond - (beyond @ wide.T) @ wide
    _, sizes, across = torch.linalg.svd(beyond, full_matrices=False)
    fresh: Tensor = across[sizes > _DEPENDENT].to(basis.dtype)
    return fresh
