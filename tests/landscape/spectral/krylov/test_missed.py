"""Multiple, close and crowded eigenvalues at both ends: nothing is missed among what is called certified."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedscope.landscape import LambdaOperator, top_eigenpairs
from fedscope.landscape.spectral.krylov.ritz import OWN, Which
from tests import tiers

CASES = tiers.draws(24, 120)
N = 60


def spectrum(generator: torch.Generator) -> Tensor:
    """Draw a spectrum with copies, near copies and clusters at both ends, and a bulk between."""

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def normal(count: int) -> Tensor:
        return torch.randn(count, generator=generator, dtype=torch.float64)

    parts = []
    for sign in (1, -1):
        for _ in range(integer(1, 3)):
            at = sign * float(normal(1).abs() * 4 + 0.5)
            fold = integer(1, 8)
            kind = integer(0, 2)  # copies, values 1e-4 apart, a cluster of 1 %
            spread = (0.0, 1e-4, 1e-2)[kind]
            parts.append(at * (1 + spread * torch.linspace(0, 1, fold, dtype=torch.float64)))
    ends = torch.cat(parts)
    bulk = normal(N - len(ends)) * float(normal(1).abs()) * 0.3
    return torch.cat([ends, bulk])


def turned(values: Tensor, generator: torch.Generator) -> LambdaOperator:
    """The operator of a matrix with these eigenvalues, in a random basis."""
    basis, _ = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64))
    matrix = (basis * values) @ basis.T
    return LambdaOperator(lambda v: matrix @ v, N)


@pytest.mark.drawn
def test_nothing_is_missed_among_what_is_certified() -> None:
    generator, certified, wrong = torch.Generator().manual_seed(0), 0, list[int]()
    ends: tuple[Which, ...] = ("largest", "smallest", "both", "magnitude")
    for case in range(CASES):
        values = spectrum(generator)
        k = int(torch.randint(1, 9, (1,), generator=generator))
        which = ends[case % 4]
        found = top_eigenpairs(turned(values, generator), k=k, which=which, seed=case)
        truth = values.sort(descending=True).values
        if which == "magnitude":  # of near equal sizes at both ends either may be taken
            order = found.values.abs().argsort(descending=True)
            found, truth = found.some(order), truth.abs().sort(descending=True).values
            found = replace(found, values=found.values.abs())
        expected = {"smallest": truth[-k:], "both": torch.cat([truth[:k], truth[-k:]])}.get(which, truth[:k])
        room = torch.maximum(found.residuals, OWN * found.values.abs()) + 1e-12
        off = (found.values - expected).abs() > room
        wrong += [case] if bool((off & found.certified).any()) else []
        certified += int(found.certified.sum() == len(found.values))
    assert wrong == []
    assert certified >= 0.98 * CASES
