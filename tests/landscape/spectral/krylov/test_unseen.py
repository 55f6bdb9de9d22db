"""The bound on what a random start has passed over: against the Gauss–Radau rule, and against draws."""

import math

import pytest
import torch
from torch import Tensor

from fedscope.landscape import LambdaOperator, top_eigenpairs
from fedscope.landscape.spectral.gauss_quadrature import share_limits
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.ritz import Which
from fedscope.landscape.spectral.krylov.unseen import MOST, least, unseen


def process(spectrum: Tensor, steps: int, seed: int = 0) -> Lanczos:
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(len(spectrum), generator=generator, dtype=torch.float64)
    krylov = Lanczos(LambdaOperator(lambda v: spectrum * v, len(spectrum)), start, generator=generator)
    for _ in range(steps):
        krylov.step()
    return krylov


@pytest.mark.parametrize("steps", [2, 5, 9])
@pytest.mark.parametrize("end", ["above", "below"])
def test_the_mass_is_that_of_the_radau_rule(steps: int, end: str) -> None:
    krylov = process(torch.linspace(-1, 2, 40).double(), steps)
    theta, s = torch.linalg.eigh(krylov.projected)
    at = float(theta[-1]) + 0.05 if end == "above" else float(theta[0]) - 0.05
    below, up_to = share_limits(theta, s[0] ** 2, at)
    mass = 1 - below if end == "above" else up_to
    assert krylov.unseen(at) == pytest.approx(min(1.0, math.sqrt(2 * 40 * mass / math.pi)), rel=1e-5)


def test_it_holds_for_an_eigenvalue_that_many_starts_have_little_of() -> None:
    """Before a start has found the outlier, the bound says that it may well have missed it."""
    spectrum = torch.ones(2000, dtype=torch.float64)
    spectrum[0] = 1.5
    for seed in range(200):
        krylov = process(spectrum, 1, seed)
        assert krylov.unseen(1.4) == 1.0
        krylov.step()
        found = float(torch.linalg.eigvalsh(krylov.projected)[-1]) > 1.4
        assert found or krylov.unseen(1.4) > MOST


def test_a_space_that_is_exhausted_leaves_rounding_alone() -> None:
    spectrum = torch.tensor([3.0] * 5 + [1.0] * 45, dtype=torch.float64)
    krylov = process(spectrum, 2)
    assert krylov.betas[-1] == 0
    assert krylov.unseen(3.1) == pytest.approx(math.sqrt(100 / math.pi) * torch.finfo(torch.float64).eps / 2)


def test_nothing_lies_beyond_infinity_and_a_known_start_says_less() -> None:
    assert unseen([1.0], [0.5], math.inf, 10, eps=1e-16) == 0
    whole = unseen([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 100.0, 10, eps=1e-16)
    assert unseen([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 100.0, 10, eps=1e-16, random_part=0.01) == pytest.approx(
        100 * whole
    )


def test_one_product_is_no_answer() -> None:
    """Nearly the identity: any vector is nearly an eigenvector, of another value than the largest."""
    spectrum = torch.ones(100_000, dtype=torch.float64)
    spectrum[7] = 1.1
    found = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, len(spectrum)))
    assert bool(found.certified.all())
    assert float(found.values[0]) == pytest.approx(1.1, rel=1e-6)
    assert found.matvecs >= 2


def test_what_cannot_be_certified_is_marked() -> None:
    spectrum = torch.linspace(0, 1, 3000, dtype=torch.float64)
    found = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, 3000), k=3, tol=1e-2, max_matvecs=12)
    assert not found.converged
    assert not bool(found.certified.any())


def test_the_smallest_are_known_to_their_own_size() -> None:
    spectrum = torch.cat([torch.linspace(0, 10, 200), -torch.tensor([0.08, 0.06, 0.04])]).double()
    found = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, len(spectrum)), k=3, which="smallest")
    assert found.converged
    torch.testing.assert_close(found.values, torch.tensor([-0.04, -0.06, -0.08]).double(), rtol=5e-3, atol=0)


def test_copies_of_an_eigenvalue_are_found() -> None:
    """The Hessian of a linear layer under a squared error has each eigenvalue once for every output."""
    torch.manual_seed(0)
    gram = torch.randn(60, 30, dtype=torch.float64)
    matrix = torch.kron(gram.T @ gram / 60, torch.eye(5, dtype=torch.float64))
    found = top_eigenpairs(LambdaOperator(lambda v: matrix @ v, 150), k=6)
    assert found.converged
    expected = torch.linalg.eigvalsh(matrix).flip(0)[:6]
    torch.testing.assert_close(found.values, expected, rtol=5e-3, atol=0)


def test_rounding_leaves_a_probability_that_no_step_lowers() -> None:
    """GPT-2 small has 124 million coordinates: its outlier is within reach of float32, a billion's is not."""
    alphas, betas, eps = [0.0] * 30, [1.0] * 30, torch.finfo(torch.float32).eps
    for n, told in ((124_439_808, True), (10**9, False)):
        assert unseen(alphas, betas, 4.0, n, eps=eps) == pytest.approx(least(n, eps))
        assert (least(n, eps) < MOST) == told


@pytest.mark.parametrize("which", ["largest", "both"])
def test_what_rounding_leaves_is_enough(which: Which, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a billion coordinates: the search ends, by the least that can be told."""
    monkeypatch.setattr("fedscope.landscape.spectral.krylov.lanczos.least", lambda n, eps: 2e-3)
    monkeypatch.setattr("fedscope.landscape.spectral.krylov.unseen.least", lambda n, eps: 2e-3)
    values = torch.cat([torch.linspace(-1, 1, 298), torch.tensor([5.0, -4.0])]).double()
    found = top_eigenpairs(
        LambdaOperator(lambda v: values * v, 300, dtype=torch.float64), which=which, seed=0
    )
    assert found.certified.all()
    assert found.matvecs < 60


def test_what_rounding_did_to_a_start_is_measured() -> None:
    """Two billion coordinates are within reach by it; a start of unknown rounding counts as the worst."""
    n, eps = 4000, torch.finfo(torch.float32).eps
    values = torch.tensor([3.0, 1.0]).repeat(n // 2)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(n, generator=generator, dtype=torch.float64)
    unit = start / start.norm()
    rounding = float((unit.float().double() - unit).norm())
    assert least(2 * 10**9, 2 * rounding) < MOST < least(2 * 10**9, eps)
    for given, lost in ((start, rounding), (start.float(), eps / 2)):
        krylov = Lanczos(LambdaOperator(lambda v: values * v, n, torch.float32), given, generator=generator)
        while not krylov.betas or krylov.betas[-1] > 0:
            krylov.step()
        assert krylov.unseen(3.1) == pytest.approx(math.sqrt(2 * n / math.pi) * lost, rel=1e-6)
