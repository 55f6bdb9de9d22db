import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Hessian, LambdaOperator, orthogonal, spectral_density
from fedscope.landscape.sharpness.block_spectra import block_spectra, mean_spectral_distance
from fedscope.landscape.spectral.spectral_results import Density, Estimate
from tests import tiers
from tests.landscape.cases import mlp

ONE = torch.linspace(0, 4, 40, dtype=torch.float64)
OTHER = torch.cat([torch.linspace(0, 3, 30), torch.linspace(4, 8, 10)]).double()
THIRD = torch.linspace(-1, 6, 40, dtype=torch.float64)


def _apart(one: Density, other: Density, sigma: float | None = None) -> Estimate:
    return mean_spectral_distance({"a": one, "b": other}, sigma=sigma)


def density(values: Tensor, probes: int, seed: int, steps: int = 40) -> Density:
    """Of a matrix with these eigenvalues in random directions."""
    g = torch.Generator().manual_seed(11)
    q = torch.linalg.qr(torch.randn(len(values), len(values), generator=g, dtype=torch.float64))[0]
    op = LambdaOperator(lambda v: q @ (values * (q.T @ v)), len(values))
    complete = probes == len(values)
    sampler = {"sampler": orthogonal} if complete else {}
    return spectral_density(op, probes=probes, steps=steps, seed=seed, sigma=0.5, **sampler)  # type: ignore[arg-type]


def drawn(values: Tensor, probes: int, g: torch.Generator) -> Density:
    """The density of normal probes after all steps: the eigenvalues, with the squares of z in their basis."""
    squares = torch.randn(probes, len(values), generator=g, dtype=torch.float64).square()
    weights = squares / squares.sum(1, keepdim=True)
    return replace(of_all(), nodes=values.expand(probes, -1), weights=weights, exact=False)


@cache
def of_all() -> Density:
    """That of all eigenvalues of the first matrix."""
    return density(ONE, 40, 0)


def divergence(one: Tensor, other: Tensor, sigma: float) -> float:
    """JS of two sets of eigenvalues behind a Gaussian, by Riemann's sum in its second form, of entropies."""
    x = torch.linspace(-8, 16, 40_001, dtype=torch.float64)
    p, q = (
        torch.exp(-((x[:, None] - v) ** 2) / (2 * sigma**2)).mean(1) / (sigma * math.sqrt(2 * math.pi))
        for v in (one, other)
    )

    def entropy(density: Tensor) -> float:
        return -float(torch.xlogy(density, density).sum()) * float(x[1] - x[0])

    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def test_exact_densities_have_the_divergence_of_their_spectra() -> None:
    complete = [density(v, 40, 0) for v in (ONE, OTHER)]
    found = _apart(complete[0], complete[1], sigma=0.5)
    assert found.value == pytest.approx(divergence(ONE, OTHER, 0.5), rel=1e-6)
    assert found.stderr == 0
    same = _apart(complete[0], complete[0])
    assert same.value == pytest.approx(0, abs=1e-12)
    apart = _apart(complete[0], density(ONE + 100, 40, 0), sigma=0.5)
    assert apart.value == pytest.approx(math.log(2), rel=1e-6)
    names = dict(zip("abc", [*complete, density(THIRD, 40, 0)], strict=True))
    width = 0.01 * (8 - -1)  # 1 % of the range of all nodes
    pairs = [(ONE, OTHER), (ONE, THIRD), (OTHER, THIRD)]
    expected = sum(divergence(*pair, width) for pair in pairs) / 3
    assert mean_spectral_distance(names).value == pytest.approx(expected, rel=1e-6)


@pytest.mark.drawn
def test_its_intervals_cover() -> None:
    draws = tiers.draws()
    single = mean = 0
    truths = [divergence(*pair, 0.5) for pair in ((ONE, OTHER), (ONE, THIRD), (OTHER, THIRD))]
    g = torch.Generator().manual_seed(0)
    for _ in range(draws):
        own = [drawn(v, 8, g) for v in (ONE, OTHER, THIRD)]
        low, high = _apart(own[0], own[1], sigma=0.5).interval()
        single += low <= truths[0] <= high
        low, high = mean_spectral_distance(dict(zip("abc", own, strict=True)), sigma=0.5).interval()
        mean += low <= sum(truths) / 3 <= high
    assert tiers.nominal(single, draws)
    assert tiers.nominal(mean, draws)


def test_blocks_have_the_spectra_of_the_dense_hessians_blocks() -> None:
    case, seen = mlp(), list[int]()
    matrix = case.dense()

    def restricted(names: Sequence[str]) -> Hessian:
        return Hessian(case.model, case.loss_fn, case.batches, parameters=names)

    found = block_spectra(
        restricted, ["0.*", "2.*"], tol=1e-9, rtol=1e-8, seed=2, progress=lambda done, *_: seen.append(done)
    )
    for layer, block in {"0.*": slice(0, 30), "2.*": slice(30, 51)}.items():
        own = matrix[block, block]
        assert float(found[layer].largest.values[0]) == pytest.approx(float(torch.linalg.eigvalsh(own)[-1]))
        assert found[layer].trace.value == pytest.approx(float(own.trace()), rel=1e-6)
        low, high = found[layer].density.moments[0].interval()
        assert low < float(own.trace()) / len(own) < high
    assert seen[-1] >= sum(block.matvecs for block in found.values())
    assert found["0.*"].matvecs > 100
    alone = block_spectra(restricted, ["2.*"], seed=2, rtol=1e-8, tol=1e-9)["2.*"]
    assert torch.equal(alone.density.nodes, found["2.*"].density.nodes)


def test_bad_requests_are_refused() -> None:
    own = density(ONE, 4, 0)
    with pytest.raises(UserError, match="sigma is -1"):
        _apart(own, own, sigma=-1)
    with pytest.raises(UserError, match="at least two layers"):
        mean_spectral_distance({"a": own})
    assert math.isnan(_apart(density(ONE, 1, 0), own).stderr)
