import pytest
import torch
from torch import Tensor

from fedscope.landscape.operators.basis.krylov_basis import Remainder, Subspace
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from tests.landscape.cases import Case


def _learnt(case: Case, *, restarted: bool) -> Subspace:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(len(case.weights), generator=generator, dtype=torch.float64)
    krylov = Lanczos(case.operator, start, generator=generator, by_batch=True)
    for _ in range(10):
        krylov.step()
    if restarted:
        krylov.restart(torch.linalg.eigh(krylov.projected)[1][:, -4:])
    return krylov.subspace()


def _exact(known: Subspace) -> Tensor:
    """Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ."""
    coupled = torch.outer(known.basis.T @ known.coupling, known.outside)
    part: Tensor = known.basis.T @ known.projected @ known.basis + coupled + coupled.T
    return part


@pytest.mark.parametrize("restarted", [False, True])
def test_a_subspace_and_its_remainder_make_the_whole(case: Case, dense: Tensor, restarted: bool) -> None:
    known, n = _learnt(case, restarted=restarted), len(dense)
    remainder = Remainder(case.operator, known.basis)
    rest = remainder.matmat(torch.eye(n, dtype=torch.float64))
    torch.testing.assert_close(_exact(known) + rest, dense, rtol=0, atol=1e-10)
    torch.testing.assert_close(known.diagonal(), _exact(known).diagonal(), rtol=0, atol=1e-12)
    rows = torch.randn(3, n, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(known.known_products(rows), rows @ _exact(known), rtol=0, atol=1e-10)
    assert known.trace == pytest.approx(float(_exact(known).trace()), abs=1e-10)
    assert known.trace + float(rest.trace()) == pytest.approx(float(dense.trace()), abs=1e-9)


def test_the_remainder_has_the_batches_forms(case: Case) -> None:
    known = _learnt(case, restarted=False)
    generator = torch.Generator().manual_seed(1)
    v, *u = torch.randn(4, len(case.weights), generator=generator, dtype=torch.float64)
    rows = torch.stack(u)
    product = Remainder(case.operator, known.basis).product(v, onto=rows)
    inner = case.operator.product(known.without(v), onto=known.without(rows))
    assert product.forms is not None
    assert product.onto is not None
    assert inner.forms is not None
    torch.testing.assert_close(product.forms, inner.forms)
    shares = torch.tensor(case.batches.sizes).double() / case.batches.samples
    torch.testing.assert_close(shares @ product.onto, rows @ product.vector)
    torch.testing.assert_close(shares @ product.forms, v @ product.vector)
