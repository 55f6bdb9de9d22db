"""H_N and H_D of what the clients' samples were drawn from, against brute force with noiseless probes."""

from itertools import combinations, permutations

import pytest
import torch
from torch import Tensor

from fedscope.choices import Reading
from fedscope.errors import UserError
from fedscope.landscape import CrossClient, cross_client
from fedscope.landscape.heterogeneity.populations import Parts, _square
from fedscope.statistics.standard_errors import sample_error
from tests.landscape.coverage import BatchMatrices

CLIENTS, BATCHES, N = 3, 5, 6


def diagonals(seed: int = 0) -> Tensor:
    """Each batch's diagonal of each client, (K, B, n)."""
    generator = torch.Generator().manual_seed(seed)
    means = 1 + torch.rand(CLIENTS, 1, N, generator=generator, dtype=torch.float64)
    return means + 0.3 * torch.randn(CLIENTS, BATCHES, N, generator=generator, dtype=torch.float64)


def operators(batches: Tensor, population: int | None = None) -> list[BatchMatrices]:
    """Operators with diagonal matrices: every ±1 probe tells all of the diagonal."""
    found = [BatchMatrices(torch.diag_embed(one), 4, blocks=(("a", 2), ("b", N - 2))) for one in batches]
    for op in found:
        op.population = population
    return found


def measured(batches: Tensor, population: int | None = None) -> CrossClient:
    return cross_client(operators(batches, population), probes=16)


def test_heavy_tails_of_the_parts_leave_fewer_degrees_of_freedom() -> None:
    batches = diagonals()
    batches[1, 0] *= 3
    along = [one @ one.mean(0) for one in batches]
    fewest = min(sample_error(one)[1] for one in along)
    assert fewest < 3.7 < BATCHES - 1
    for found in (measured(batches).H_N_population, measured(batches).H_N_scale_free_population):
        assert found["parameter"].dof == pytest.approx(fewest)


def relations(batches: list[Tensor], factor: float) -> tuple[Tensor, float]:
    """Norms and the mean cosine; of squares the share ``factor`` is from products of different batches."""
    means = torch.stack([one.mean(0) for one in batches])
    inner = means @ means.T
    for k, one in enumerate(batches):
        products = one @ one.T
        unlike = (products.sum() - products.trace()) / (len(one) * (len(one) - 1))
        inner[k, k] += factor * (unlike - inner[k, k])
    norms = inner.diagonal().sqrt()
    cosines = inner / torch.outer(norms, norms)
    return norms, float(cosines[OFF].mean())


def without(batches: Tensor, k: int, b: int) -> list[Tensor]:
    return [torch.cat([one[:b], one[b + 1 :]]) if client == k else one for client, one in enumerate(batches)]


def variance_of_square(batch: Tensor, factor: float) -> float:
    """4 mᵀΣm/B + 2 tr Σ²/B² of a mean m of B batches: tr Σ² by enumeration of four different batches."""
    B, mean = len(batch), batch.mean(0)
    of_four = [
        float((batch[a] - batch[b]) @ (batch[c] - batch[d])) ** 2 / 4
        for a, b, c, d in permutations(range(B), 4)
    ]
    second = sum(of_four) / len(of_four) / B**2
    first = float(mean @ torch.cov(batch.T) @ mean) / B - second
    return 4 * factor * first + 2 * factor**2 * second / (1 - 1 / B)


OFF = ~torch.eye(CLIENTS, dtype=torch.bool)


@pytest.mark.parametrize("factor", [1.0, 0.75])
@pytest.mark.parametrize("reading", ["parameter", "tensor"])
def test_they_are_what_brute_force_over_batches_gives(reading: Reading, factor: float) -> None:
    """Bias and variance times 1 − N/M of a finite population."""
    batches = diagonals()
    found = measured(batches, population=None if factor == 1 else round(4 * BATCHES / (1 - factor)))
    if reading == "tensor":
        batches = torch.stack([batches[..., :2].sum(2), batches[..., 2:].sum(2)], 2)
    norms, mean = relations(list(batches), factor)
    mean_variance, value = 0.0, mean
    for k in range(CLIENTS):
        left = [relations(without(batches, k, b), factor)[1] for b in range(BATCHES)]
        left_means = torch.tensor(left, dtype=torch.float64)
        value -= factor * (BATCHES - 1) * float(left_means.mean() - mean)
        mean_variance += factor * (BATCHES - 1) ** 2 / BATCHES * float(left_means.var())
    H_D = found.H_D_population[reading]
    assert H_D.value == pytest.approx(value, rel=1e-9)
    assert H_D.stderr == pytest.approx(mean_variance**0.5, rel=1e-9)
    of_squares = torch.tensor([variance_of_square(one, factor) for one in batches], dtype=torch.float64)
    variances = of_squares / (4 * norms**2)
    corrected = norms + variances / (2 * norms)
    gaps = (corrected[:, None] - corrected) ** 2 - variances[:, None] - variances
    assert found.H_N_population[reading].value == pytest.approx(float(gaps[OFF].mean()), rel=1e-9)
    relative = variances / norms**2
    logs = norms.log() + relative
    ratios = (logs[:, None] - logs).exp()
    both = (ratios + 1 / ratios)[OFF]
    wanted = (both - 2 - both * (relative[:, None] + relative)[OFF] / 2).mean()
    assert found.H_N_scale_free_population[reading].value == pytest.approx(float(wanted), rel=1e-9)


@pytest.mark.parametrize("reading", ["parameter", "tensor"])
def test_scale_free_norms_are_of_the_ratios_and_no_common_factor_moves_them(reading: Reading) -> None:
    batches = diagonals()
    found, larger = measured(batches), measured(1000 * batches)
    norms = torch.tensor([one.value for one in found.squared_norms[reading]]).sqrt()
    wanted = ((norms[:, None] - norms) ** 2 / torch.outer(norms, norms))[OFF].mean()
    assert found.H_N_scale_free[reading].value == pytest.approx(float(wanted), rel=1e-6)
    for name in ("H_N_scale_free", "H_N_scale_free_population"):
        one, other = getattr(found, name)[reading], getattr(larger, name)[reading]
        assert other.value == pytest.approx(one.value, rel=1e-9)
        assert other.interval() == pytest.approx(one.interval(), rel=1e-6, abs=1e-12)


def test_norms_of_one_population_have_no_gap_on_average() -> None:
    """Linear regression with known features, whose Hessian is E[x xᵀ]: all clients draw from one population.

    Jackknife variances, which count what is of second order twice, put this at −6 standard errors.
    """
    rows, features, clients, scales = 64, 20, 4, torch.linspace(0.7, 1.4, 20, dtype=torch.float64)
    found: dict[tuple[str, Reading], list[tuple[float, float]]] = {}
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(clients, rows, features, generator=generator, dtype=torch.float64)
        x = (x + torch.randn(clients, rows, 1, generator=generator, dtype=torch.float64)) * scales
        parts = x.view(clients, 16, rows // 16, features)
        own = [BatchMatrices(one.mT @ one / (rows // 16), rows // 16, blocks=BLOCKS) for one in parts]
        cross = cross_client(own, probes=32, seed=seed)
        for name in ("H_N", "H_N_scale_free"):
            for reading in READINGS:
                one = getattr(cross, f"{name}_population")[reading]
                found.setdefault((name, reading), []).append((one.value, one.interval()[1]))
    for key, pairs in found.items():
        values, highs = torch.tensor(pairs, dtype=torch.float64).T
        assert abs(values.mean()) < 3 * values.std() / 60**0.5, key
        assert (highs >= 0).double().mean() >= 0.92, key
        assert highs.median() < 4 * 1.96 * values.std(), key  # from 0: half of it is the half-width


BLOCKS = (("a", 12), ("b", 5), ("c", 3))
READINGS: tuple[Reading, ...] = ("parameter", "tensor")


def test_a_square_is_unbiased_over_all_draws_from_a_finite_population() -> None:
    rows = torch.randn(6, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = []
    for chosen in combinations(range(6), 3):
        drawn = rows[list(chosen)]
        mean = drawn.mean(0)
        squares = drawn.square().sum(1) - mean @ mean
        shares = torch.full((3,), 1 / 3, dtype=torch.float64)
        parts = Parts(shares, 1 - 3 / 6, (drawn - mean) @ mean[:, None], squares)
        found.append(float(_square(parts, mean @ mean)))
    assert sum(found) / len(found) == pytest.approx(float(rows.mean(0) @ rows.mean(0)), rel=1e-12)


def test_a_whole_population_has_no_error_and_costs_no_product() -> None:
    batches = diagonals()
    whole, drawn = measured(batches, population=4 * BATCHES), measured(batches)
    assert drawn.matvecs == whole.matvecs + 8 * CLIENTS
    assert whole.H_D_population["parameter"].value == pytest.approx(whole.H_D["parameter"].value, rel=1e-12)
    assert whole.H_D_population["parameter"].stderr == pytest.approx(0, abs=1e-9)
    half = measured(batches, population=8 * BATCHES)
    between = sorted((whole.H_D["parameter"].value, drawn.H_D_population["parameter"].value))
    assert between[0] < half.H_D_population["parameter"].value < between[1]
    assert half.H_D_population["parameter"].stderr < drawn.H_D_population["parameter"].stderr


def test_clients_with_the_same_samples_or_too_few_batches_have_none() -> None:
    batches = diagonals()
    assert not measured(batches[[0, 1, 1]]).H_D_population
    assert not measured(batches[:, :3]).H_D_population
    assert not cross_client(operators(batches), probes=16, sample_probes=0).H_D_population
    assert not cross_client(iter(operators(batches)), probes=16).H_D_population


def test_probes_of_several_blocks_are_as_good_as_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine probes, two at a time: the last one alone has no pair, and counts for inner products."""
    batches = diagonals()
    whole = cross_client(operators(batches), probes=16, sample_probes=9)
    monkeypatch.setattr("fedscope.landscape.heterogeneity.populations.block_size", lambda _: 1)
    found = cross_client(operators(batches), probes=16, sample_probes=9)
    assert found.matvecs == whole.matvecs
    for reading in ("parameter", "tensor"):
        ours, theirs = found.H_D_population[reading], whole.H_D_population[reading]
        assert ours.value == pytest.approx(theirs.value, rel=1e-12)
        assert ours.stderr == pytest.approx(theirs.stderr, rel=1e-9)


@pytest.mark.parametrize("probes", [1, 3])
def test_too_few_probes_are_refused(probes: int) -> None:
    with pytest.raises(UserError, match="take at least 4, or none"):
        cross_client(operators(diagonals()), probes=16, sample_probes=probes)


def test_a_norm_below_the_samples_noise_is_unresolved() -> None:
    batches = diagonals()
    batches[0] -= batches[0].mean(0) * 0.999
    found = measured(batches)
    assert found.H_D["parameter"].resolved
    assert not found.H_D_population["parameter"].resolved
