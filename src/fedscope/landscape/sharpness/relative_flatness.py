"""Relative flatness of a layer (Petzka et al. 2021, definition 3), which no rescaling of layers changes.

    κ_Tr = Σ_{s,s'} ⟨w_s, w_s'⟩ tr H_{s,s'}

over the rows w_s (m,) of the layer's weights W (d, m), one for each of its d neurons (of tensors that store
outputs first, as linear layers and convolutions do), with H_{s,s'} the block
of the Hessian between two rows. With G = WWᵀ that is tr (G ⊗ 1)H = tr (G^½ ⊗ 1)H(G^½ ⊗ 1), the trace of a
symmetric operator on the layer's own coordinates. The second measure of their program is of single rows,

    κ_max = Σ_s ‖w_s‖² λ_max(H_{s,s}).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.basis.projections import Conjugated
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.probes import generator_of, seed_of
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.sharpness.sharpness_result import Cost, Sharpness
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.statistics.standard_errors import data_stderr, drawn_stderr


def last_linear(model: nn.Module) -> str:
    """Return the name of the weights of the last linear layer, by the order of the model's modules.

    Raises:
        UserError: there is none that is trained, or the last one's weights are those of another layer too.
    """
    every = {name: p for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    layers = [
        f"{name}.weight" if name else "weight"
        for name, m in model.named_modules()
        if isinstance(m, nn.Linear)
    ]
    known = [name for name in layers if name in every]
    if not known:
        raise UserError("the model has no linear layer that is trained; name the weights of a layer")
    check_rows(model, known[-1:])
    return known[-1]


def check_rows(model: nn.Module, names: Sequence[str]) -> None:
    every = dict(model.named_parameters(remove_duplicate=False))
    for name in names:
        owner = model.get_submodule(name.rpartition(".")[0])
        kind = type(owner).__name__
        if isinstance(owner, _ConvTransposeNd | nn.Embedding | nn.EmbeddingBag) or kind == "Conv1D":
            raise UserError(
                f"{name} is of {kind}, which stores its inputs first, and relative flatness is of rows that "
                "are outputs; name the weights of a linear layer or a convolution"
            )
        for twin, p in every.items():
            if p is every[name] and twin != name:
                raise UserError(f"{name} and {twin} are one tensor, of two layers; name another's weights")


def relative_flatness(
    op: LossOperator,
    *,
    rtol: float | None = None,
    probes: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sharpness:
    """Estimate κ_Tr by the estimator of a trace (:func:`fedscope.landscape.trace`), with its errors.

    Args:
        op: the Hessian of the weights of one layer, such as
            ``Hessian(model, loss_fn, batches, parameters=[last_linear(model)])``.
        rtol: the standard error wanted, relative to the value; 0.05 if neither this nor ``probes`` is given.
        probes: take exactly so many instead.
        generator: draws the probes.
        seed: of such a generator instead; 0 if neither is given.
        progress: called after every product.

    Raises:
        UserError: the operator has other than one tensor of two or more dimensions, both ``rtol`` and
            ``probes``, or both ``generator`` and ``seed``.
    """
    rows = _rows(op)
    found = trace(
        _weighed(op, rows),
        rtol=rtol,
        probes=probes,
        generator=generator_of(generator, seed),
        progress=progress,
    )
    return Sharpness(
        value=found.value,
        stderr_draws=found.stderr_probe,
        dof_draws=found.dof_probe,
        stderr_data=found.stderr_data,
        dof_data=found.dof_data,
        draws=found.samples,
        batches=found.batches,
        cost=Cost(products=found.matvecs),
        seed=found.seed,
    )


def largest_relative_flatness(
    op: LossOperator,
    *,
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sharpness:
    """Return κ_max, from the largest eigenvalue of each row's block, to the residual ``tol`` of each.

    Nothing is drawn but starting vectors: ``stderr_draws`` is 0. ``stderr_data`` is over the batches, to
    first order, by their vᵀH_b v. Arguments and errors as of :func:`relative_flatness`, and:

    Args:
        tol: residual of an eigenpair, relative to the row's own |λ_max|.
    """
    rows, seed = _rows(op), seed_of(generator, seed)
    lengths = rows.square().sum(1)
    value, spent, parts = 0.0, 0, torch.zeros(len(op.weights or (1,)), dtype=torch.float64)
    for s, length in enumerate(lengths.tolist()):
        if length == 0:
            continue
        pairs = top_eigenpairs(
            _Row(op, s, rows.shape[1]),
            k=1,
            tol=tol,
            seed=seed,
            by_sample=False,
            progress=continued(progress, spent, len(rows) - s),
        )
        spent += pairs.matvecs
        value += length * float(pairs.values[0])
        if pairs.forms is not None:  # of one batch there are none
            parts += length * pairs.forms[0].cpu()
    return Sharpness(
        value=value,
        stderr_draws=0.0,
        stderr_data=drawn_stderr(data_stderr(parts, op.weights), op.finite_population),
        dof_data=len(parts) - 1,
        batches=tuple(parts.tolist()) if len(parts) > 1 else (),
        cost=Cost(products=spent),
        seed=seed,
    )


def _rows(op: LossOperator) -> Tensor:
    if len(op.shapes) != 1 or len(op.shapes[0]) < 2:
        raise UserError(
            f"relative flatness is of the weights of one layer, not of {', '.join(op.names[:4])}; give the "
            "operator parameters=['LAYER.weight']"
        )
    return op.loss.center.double().reshape(op.shapes[0][0], -1)


def _weighed(base: Operator, rows: Tensor) -> Operator:
    """Return (G^½ ⊗ 1) H (G^½ ⊗ 1)."""
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T

    def mixed(v: Tensor) -> Tensor:
        shaped = v.double().view(-1, len(root), rows.shape[1])
        return torch.einsum("st,rtj->rsj", root, shaped).reshape(v.shape).to(v.dtype)

    return Conjugated(base, mixed, float(values.clamp(min=0).max().sqrt()))


class _Row(Operator):
    """H_{s,s}, seen through products with vectors that are zero outside the row."""

    def __init__(self, base: Operator, s: int, m: int) -> None:
        super().__init__(
            m, dtype=base.dtype, device=base.device, weights=base.weights, population=base.population
        )
        self._base, self._span = base, slice(s * m, (s + 1) * m)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        found = self._base._apply(self._padded(rows), None if onto is None else self._padded(onto))
        return [replace(p, vector=p.vector[self._span]) for p in found]

    def _padded(self, vectors: Tensor) -> Tensor:
        whole = vectors.new_zeros(len(vectors), self._base.shape[0])
        whole[:, self._span] = vectors
        return whole
