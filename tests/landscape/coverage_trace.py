"""The quantities whose intervals are tried on the net of ``coverage``.

Those of ``DRAWN`` take a draw of samples from the population, those of ``PROBED`` the population's own
matrix, so that only the probes are random. A row with several numbers (one per tensor) gives the share over
all of them.

Symbols: n parameters, B batches in a draw.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.spectral.diagonal import diagonal
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.ritz import Which
from fedscope.landscape.spectral.slq_density import spectral_density
from fedscope.landscape.spectral.spectral_results import Density, Trace
from fedscope.statistics.standard_errors import interval

from .coverage import TENSORS, BatchMatrices, Interval, Row

BELOW = 0.02  # eigenvalues under minus this are the negative mass


@lru_cache(maxsize=1)
def krylov_space(op: Operator, steps: int = 12) -> Subspace:
    """Return a Krylov space of ``op``, from one start for all seeds."""
    generator = torch.Generator().manual_seed(12345)
    start = torch.randn(op.shape[0], generator=generator, dtype=op.dtype)
    process = Lanczos(op, start, generator=generator, by_batch=True)
    for _ in range(steps):
        process.step()
    return process.subspace()


def _eigenvalue(op: Operator, which: Which) -> Sequence[Interval]:
    return [top_eigenpairs(op, which=which).interval()]


def _ten_largest(op: Operator, seed: int) -> Sequence[Interval]:
    found = top_eigenpairs(op, k=10)
    return [found.interval(i) for i in range(10)]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _trace(op: Operator, seed: int, **options: Any) -> Trace:
    return trace(op, generator=_generator(seed), **options)


def _data_error(op: Operator, seed: int) -> Sequence[Interval]:
    """The exact trace of the draw, with the data's error as ten deflated probes have it."""
    assert isinstance(op, BatchMatrices)
    found = _trace(op, seed, probes=10, known=krylov_space(op))
    return [interval(op.trace(), found.stderr_data, found.dof_data)]


def _tensors(op: Operator, seed: int, known: Subspace | None = None) -> Sequence[Interval]:
    found = diagonal(op, known=known, probes=32, generator=_generator(seed))
    return [estimate.interval() for estimate in found.tensors().values()]


@lru_cache(maxsize=1)
def _density(op: Operator, seed: int) -> Density:
    return spectral_density(op, probes=5, steps=40, sigma=BELOW, generator=_generator(seed))


def _printed(op: Operator, seed: int) -> Interval:
    low, high = _density(op, seed).mass_interval(-BELOW)
    return 1 - high, 1 - low


def _descending(matrix: Tensor) -> Sequence[float]:
    values: list[float] = torch.linalg.eigvalsh(matrix).flip(0).tolist()
    return values


def _traces(matrix: Tensor) -> Sequence[float]:
    return [float(matrix.trace())]


def _tensor_traces(matrix: Tensor) -> Sequence[float]:
    return [float(part.sum()) for part in matrix.diagonal().split(TENSORS)]


def _negative(matrix: Tensor) -> Sequence[float]:
    values = torch.linalg.eigvalsh(matrix)
    return [float((values < -BELOW).double().mean())]


def _above(matrix: Tensor) -> Sequence[float]:
    return [float((torch.linalg.eigvalsh(matrix) > 0.1).double().mean())]


DRAWN = (
    Row("λ_max", lambda op, seed: _eigenvalue(op, "largest"), lambda mean: _descending(mean)[:1]),
    Row("the 10 largest eigenvalues", _ten_largest, lambda mean: _descending(mean)[:10]),
    Row("λ_min", lambda op, seed: _eigenvalue(op, "smallest"), lambda mean: _descending(mean)[-1:]),
    Row(
        "trace of the population, 20 probes",
        lambda op, seed: [_trace(op, seed, probes=20).population_interval()],
        _traces,
    ),
    Row(
        "trace of the population, stopped at 2 %",
        lambda op, seed: [_trace(op, seed, rtol=0.02).population_interval()],
        _traces,
    ),
    Row("trace's data error from 10 probes", _data_error, _traces),
)

PROBED = (
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
    Row("traces of tensors, 32 probes", _tensors, _tensor_traces),
    Row(
        "traces of tensors, 32 probes, deflated",
        lambda op, seed: _tensors(op, seed, krylov_space(op)),
        _tensor_traces,
    ),
    Row(
        "negative mass, 5 probes, 40 steps",
        lambda op, seed: [_density(op, seed).negative_mass.interval()],
        _negative,
    ),
    Row(
        "mass above 0.1, 5 probes, 40 steps",
        lambda op, seed: [_density(op, seed).mass(0.1).interval()],
        _above,
    ),
)

# Wider than nominal: they hold what finite steps leave open too.
PRINTED = Row("negative mass as printed", lambda op, seed: [_printed(op, seed)], _negative)
