"""How often the intervals of trace, diagonal and density cover the truth, on the net of ``coverage``.

Some rows take the population's own matrix, so that only the probes are random; the others draw samples from
the population as well. A row with several numbers (one per tensor) gives the share over all of them.

Symbols: n parameters, B batches in a draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedscope.landscape.density import spectral_density
from fedscope.landscape.diagonal import diagonal, squared_norm
from fedscope.landscape.errorbars import interval
from fedscope.landscape.lanczos import Lanczos
from fedscope.landscape.operators import LambdaOperator, Operator
from fedscope.landscape.results import Trace
from fedscope.landscape.subspace import Subspace
from fedscope.landscape.trace import trace

from .coverage import Interval, Population

TENSORS = (27, 3, 3, 135, 5, 5, 5, 50, 10)  # lengths of the net's parameters
Estimator = Callable[[Operator, int], Sequence[Interval]]


@dataclass(frozen=True)
class Row:
    """A quantity: its intervals from an operator and a seed, and its values for the population's matrix."""

    name: str
    estimate: Estimator
    truth: Callable[[Tensor], Sequence[float]]
    draws: bool = False  # whether the operator is a draw of samples


def share(row: Row, population: Population, repetitions: int = 300) -> float:
    """Return the share of intervals that hold the truth."""
    matrix = population.mean
    whole = LambdaOperator(
        lambda v: matrix @ v, len(matrix), blocks=tuple((str(i), k) for i, k in enumerate(TENSORS))
    )
    truth, hits = row.truth(matrix), 0
    for seed in range(repetitions):
        found = row.estimate(population.draw(seed) if row.draws else whole, seed)
        hits += sum(low <= value <= high for (low, high), value in zip(found, truth, strict=True))
    return hits / repetitions / len(truth)


def krylov_space(op: Operator, steps: int = 12) -> Subspace:
    """Return a Krylov space of ``op``, from one start for all seeds."""
    generator = torch.Generator().manual_seed(12345)
    start = torch.randn(op.shape[0], generator=generator, dtype=op.dtype)
    process = Lanczos(op, start, generator=generator, by_batch=True)
    for _ in range(steps):
        process.step()
    return process.subspace()


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _trace(op: Operator, seed: int, **options: Any) -> Trace:
    return trace(op, generator=_generator(seed), **options)


def _data_error(op: Operator, seed: int) -> Sequence[Interval]:
    """The exact trace of the draw, with the data's error as ten deflated probes have it."""
    found = _trace(op, seed, probes=10, known=krylov_space(op))
    exact = float(sum(op.product(row).vector[i] for i, row in enumerate(torch.eye(op.shape[0]).double())))
    return [interval(exact, found.stderr_data, found.dof_data)]


def _tensors(op: Operator, seed: int, known: Subspace | None = None) -> Sequence[Interval]:
    found = diagonal(op, known=known, probes=32, generator=_generator(seed))
    return [estimate.interval() for estimate in found.tensors().values()]


def _norm(op: Operator, seed: int, known: Subspace | None = None) -> Sequence[Interval]:
    found = diagonal(op, known=known, probes=32, generator=_generator(seed), groups=16)
    return [squared_norm(found.groups).interval()]


def _negative_mass(op: Operator, seed: int) -> Interval:
    return spectral_density(
        op, probes=5, steps=op.shape[0], generator=_generator(seed)
    ).negative_mass.interval()


def _mass(op: Operator, seed: int, above: float) -> Interval:
    return spectral_density(op, probes=5, steps=40, generator=_generator(seed)).mass(above).interval()


def _traces(matrix: Tensor) -> Sequence[float]:
    return [float(matrix.trace())]


def _tensor_traces(matrix: Tensor) -> Sequence[float]:
    return [float(part.sum()) for part in matrix.diagonal().split(TENSORS)]


def _squared_norm(matrix: Tensor) -> Sequence[float]:
    return [float(matrix.diagonal().square().sum())]


def _negative(matrix: Tensor) -> Sequence[float]:
    values = torch.linalg.eigvalsh(matrix)
    return [float((values < -1e-12 * values.abs().max()).double().mean())]


def _above(matrix: Tensor) -> Sequence[float]:
    return [float((torch.linalg.eigvalsh(matrix) > 0.1).double().mean())]


ROWS = (
    Row("trace, 20 probes", lambda op, seed: [_trace(op, seed, probes=20).interval()], _traces),
    Row(
        "trace, 20 probes, deflated",
        lambda op, seed: [_trace(op, seed, probes=20, known=krylov_space(op)).interval()],
        _traces,
    ),
    Row(
        "trace, stopped at 10 %, not deflated",
        lambda op, seed: [_trace(op, seed, rtol=0.1, max_basis=0).interval()],
        _traces,
    ),
    Row("trace, stopped at 2 %", lambda op, seed: [_trace(op, seed, rtol=0.02).interval()], _traces),
    Row(
        "trace of the population, 20 probes",
        lambda op, seed: [_trace(op, seed, probes=20).population_interval()],
        _traces,
        draws=True,
    ),
    Row(
        "trace of the population, stopped at 2 %",
        lambda op, seed: [_trace(op, seed, rtol=0.02).population_interval()],
        _traces,
        draws=True,
    ),
    Row("trace's data error from 10 probes", _data_error, _traces, draws=True),
    Row("traces of tensors, 32 probes", _tensors, _tensor_traces),
    Row(
        "traces of tensors, 32 probes, deflated",
        lambda op, seed: _tensors(op, seed, krylov_space(op)),
        _tensor_traces,
    ),
    Row("squared norm of the diagonal, 32 probes", _norm, _squared_norm),
    Row(
        "squared norm of the diagonal, 32 probes, deflated",
        lambda op, seed: _norm(op, seed, krylov_space(op)),
        _squared_norm,
    ),
    Row("negative mass, 5 probes, all steps", lambda op, seed: [_negative_mass(op, seed)], _negative),
    Row("mass above 0.1, 5 probes, 40 steps", lambda op, seed: [_mass(op, seed, 0.1)], _above),
)
