"""Clients with the same curvature: H_N is 0 and H_D is 1, exactly, whatever the probes were."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedscope.choices import Pairs
from fedscope.landscape import LambdaOperator, cross_client
from fedscope.landscape.heterogeneity.similarity import DiagonalSimilarity, compare
from fedscope.landscape.published.estimators import PublishedTrace, published_comparison
from tests.landscape.cases import symmetric

SEEDS = range(100)
PATTERNS = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 0, 0, 0, 0), (0, 1, 0, 1, 1), (0, 1, 2, 1, 3)]


def rows_of(pattern: Sequence[int], seed: int, groups: int = 16, n: int = 7) -> list[Tensor]:
    """Groups' means of noisy diagonals; clients of the same number have the same."""
    draws = torch.Generator().manual_seed(seed)
    size = (max(pattern) + 1, groups, n)
    rows = 1 + torch.rand(size[0], 1, n, generator=draws, dtype=torch.float64)
    rows = rows + 0.3 * torch.randn(size, generator=draws, dtype=torch.float64)
    return [rows[kind].clone() for kind in pattern]


def check_pairs(found: DiagonalSimilarity, pattern: Sequence[int]) -> None:
    for i, one in enumerate(pattern):
        for j, other in enumerate(pattern):
            if one == other:
                assert (float(found.H_N_matrix[i, j]), float(found.H_D_matrix[i, j])) == (0.0, 1.0)
                assert (float(found.spread[i, j]), bool(found.H_N_resolved[i, j])) == (0.0, True)
                assert found.H_D_resolved[i, j]


@pytest.mark.parametrize("pairs", ["distinct", "all_including_self"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_equal_clients_have_no_gap_in_any_draw(pattern: tuple[int, ...], pairs: Pairs) -> None:
    """No draw fails, none is unresolved: with the jackknife's rounding a third of them was."""
    for seed in SEEDS:
        found = compare(rows_of(pattern, seed), pairs)
        check_pairs(found, pattern)
        if len({*pattern}) == 1:
            assert (found.H_N.value, found.H_N.stderr, found.H_N.interval()) == (0, 0, (0, 0))
            assert (found.H_D.value, found.H_D.stderr, found.H_D.interval()) == (1, 0, (1, 1))
            assert found.H_N.resolved
            assert found.H_D.resolved


def test_the_means_weigh_equal_clients_as_pairs_of_their_own() -> None:
    pattern = (0, 1, 0, 1, 1)
    rows = rows_of(pattern, 3, n=400)
    found, alone = compare(rows, "distinct"), compare(rows[:2], "distinct")
    unlike = sum(a != b for a in pattern for b in pattern) / (len(pattern) * (len(pattern) - 1))
    assert found.H_N.value == pytest.approx(unlike * alone.H_N.value, rel=1e-12)
    assert found.H_D.value == pytest.approx(1 - unlike + unlike * alone.H_D.value, rel=1e-12)
    assert found.H_D.stderr == pytest.approx(unlike * alone.H_D.stderr, rel=1e-9)


def test_clients_that_differ_by_rounding_alone_are_measured() -> None:
    for seed in SEEDS:
        first, second, third = rows_of((0, 0, 0), seed)
        found = compare([first, second * (1 + 2e-16), third * (1 - 2e-16)], "distinct")
        assert math.isfinite(found.H_N.stderr)
        assert abs(found.H_N.value) < 1e-24
        assert (found.spread >= 0).all()


def test_one_group_of_probes_and_the_published_comparison() -> None:
    row = torch.tensor([[0.1, 0.7, 0.2]], dtype=torch.float64)
    found = compare([row, row.clone(), 3 * row], "distinct")
    check_pairs(found, (0, 0, 1))
    traces = [PublishedTrace(1.0, row[0].clone(), 5) for _ in range(5)]
    published = published_comparison(traces)
    assert (published.H_N["tensor"].value, published.H_D["tensor"].value) == (0.0, 1.0)


@pytest.mark.parametrize("count", [3, 5])
def test_equal_operators_stay_equal_where_bases_fit_for_one_alone(count: int) -> None:
    """A basis that is kept grows, one that does not fit is made anew: two estimates of one curvature."""
    values = torch.cat(
        [torch.linspace(50, 100, 8), torch.rand(52, generator=torch.Generator().manual_seed(1))]
    )
    matrix = symmetric(values, seed=2)

    def operator(shift: float) -> LambdaOperator:
        moved = matrix + shift * torch.eye(60, dtype=torch.float64)
        return LambdaOperator(lambda v: moved @ v, 60, dtype=torch.float64, blocks=(("a", 40), ("b", 20)))

    shifts = [0.0] * (count - 1) + [1.0]
    found = cross_client(
        [operator(shift) for shift in shifts], rtol=1e-9, max_probes=48, groups=4, min_probes=8, seed=0,
        basis_memory=60 * 8 * 4,
    )  # fmt: skip
    for reading in ("tensor", "parameter"):
        equal = slice(0, count - 1)
        assert not found.H_N_matrix[reading][equal, equal].any()
        assert (found.H_D_matrix[reading][equal, equal] == 1).all()
        assert found.H_N_matrix[reading][0, -1] != 0
    assert len({trace.value for trace in found.traces}) == 2
