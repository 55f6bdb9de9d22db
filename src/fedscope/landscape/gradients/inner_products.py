"""Inner products of batches' gradients with clients' gradients: all that noise scales are made of.

The products of batches with each other are needed only for what two noises have in common, tr(C_k C_j). For
that each gradient is kept as a sketch of 4,096 numbers: every coordinate is added, with a random sign, to a
random one of these (Charikar, Chen and Farach-Colton 2002). Inner products of sketches are those of the
gradients with an error of about ‖d‖‖d'‖/√4096, whose square is taken off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.kernels.derivatives import joined
from fedscope.landscape.operators.progress_callback import Progress

SKETCH = 4096
KEPT = 1 << 30  # bytes of gradients that are kept; of more, all are evaluated twice


@dataclass(frozen=True)
class BatchProducts:
    """Of one client's batches, with all K clients' gradients ĝ_j."""

    sizes: Tensor  # (B,) float64: n_b
    onto: Tensor  # (B, K) float64: ⟨g_b, ĝ_j⟩
    squares: Tensor  # (B,) float64: ‖g_b‖²
    sketches: Tensor  # (B, m) float64: of g_b
    exact: bool  # whether these are the gradients themselves
    finite: float  # the factor of a finite population on variances


def of_gradients(
    gradients: Sequence[Tensor], sizes: Sequence[Sequence[int]], finite: Sequence[float]
) -> list[BatchProducts]:
    """Return the products of gradients that are there, (B_k, n) of each client, at n_b samples each."""
    counts = [torch.tensor(own, dtype=torch.float64) for own in sizes]
    rows = [own.double().cpu() for own in gradients]
    means = torch.stack([c @ own / c.sum() for c, own in zip(counts, rows, strict=True)])
    sketch = Sketch(means.shape[1])
    return [
        BatchProducts(c, own @ means.T, own.square().sum(1), sketch(own), sketch.exact, f)
        for c, own, f in zip(counts, rows, finite, strict=True)
    ]


class Sketch:
    """A random map of n numbers to at most ``SKETCH``, the same whenever it is made."""

    def __init__(self, n: int) -> None:
        self.exact = n <= SKETCH
        if not self.exact:
            generator = torch.Generator().manual_seed(0)
            self._place = torch.randint(SKETCH, (n,), generator=generator)
            self._sign = 2.0 * torch.randint(2, (n,), generator=generator).double() - 1

    def __call__(self, rows: Tensor) -> Tensor:
        if self.exact:
            return rows
        return rows.new_zeros(*rows.shape[:-1], SKETCH).index_add_(-1, self._place, rows * self._sign)


def products_of_covariances(products: Sequence[BatchProducts]) -> Tensor:
    """Return tr(C_k C_j) (K, K), unbiased, for the covariances C_k of the clients' gradients ĝ_k.

    A client with itself as for a sample covariance of normal vectors (Wishart), for which the trace of the
    square would be too large. At least 0; 0 for a client of one batch.
    """
    rows, traces, dofs = list[Tensor](), list[float](), list[int]()
    for one in products:
        centred = one.sketches - one.sizes @ one.sketches / one.sizes.sum()
        dof = max(len(one.sizes) - 1, 1)
        rows.append(centred * (one.sizes / (one.sizes.sum() * dof)).sqrt()[:, None])
        traces.append(float(rows[-1].square().sum()))
        dofs.append(dof)
    found = torch.zeros(len(products), len(products), dtype=torch.float64)
    for k, (row, trace, dof) in enumerate(zip(rows, traces, dofs, strict=True)):
        for j, (other, second) in enumerate(zip(rows, traces, strict=True)):
            squares = float((row @ other.T).square().sum())
            if not products[k].exact and j != k:
                squares = (squares - trace * second / SKETCH) / (1 + 1 / SKETCH)
            if j == k and dof > 1:
                squares = dof**2 / ((dof - 1) * (dof + 2)) * (squares - trace**2 / dof)
                squares -= 0 if products[k].exact else trace**2 / SKETCH
            found[k, j] = max(squares, 0.0)
    return found


def of_losses(
    losses: Sequence[FlatLoss], finite: Sequence[float], *, progress: Progress | None = None
) -> tuple[list[BatchProducts], int]:
    """Return the products of clients' batches at the losses' centre, and how many gradients they took."""
    total = sum(len(loss.batches) for loss in losses)
    keeps = total * losses[0].center.nbytes <= KEPT
    kept, done = list[list[Tensor]](), 0
    means = torch.zeros(len(losses), len(losses[0].center), dtype=torch.float64)
    for k, loss in enumerate(losses):
        kept.append([])
        for size, gradient in zip(loss.batches.sizes, batch_gradients(loss), strict=True):
            means[k].add_(gradient.double(), alpha=size / loss.batches.samples)
            if keeps:
                kept[-1].append(gradient)
            done += 1
            if progress:
                progress(done, total if keeps else 2 * total)
    found, sketch = list[BatchProducts](), Sketch(means.shape[1])
    for k, loss in enumerate(losses):
        onto, squares, sketches = list[Tensor](), list[float](), list[Tensor]()
        for gradient in kept[k] if keeps else batch_gradients(loss):
            wide = gradient.double()
            onto.append(means @ wide)
            squares.append(float(wide @ wide))
            sketches.append(sketch(wide))
            done += not keeps
            if progress:
                progress(done, total if keeps else 2 * total)
        sizes = torch.tensor(loss.batches.sizes, dtype=torch.float64)
        norms = torch.tensor(squares, dtype=torch.float64)
        rows = torch.stack(sketches)
        found.append(BatchProducts(sizes, torch.stack(onto), norms, rows, sketch.exact, finite[k]))
    return found, done


def batch_gradients(loss: FlatLoss) -> Iterator[Tensor]:
    loss.load(loss.center)
    for inputs, targets in loss.batches:
        with loss.exact(), torch.enable_grad():
            value = loss.on_batch(inputs, targets)
            pieces = torch.autograd.grad(value, loss.parameters, materialize_grads=True)
        yield joined(pieces).detach().cpu()
