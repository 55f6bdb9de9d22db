"""P^(-1/2) A P^(-1/2) beside its dense matrix, and the bound on its spectrum beside torch.optim.Adam."""

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator, Operator, Preconditioned, top_eigenpairs
from fedscope.records.stability import largest_stable_adaptive
from fedscope.testing import OperatorConformance
from tests.landscape.cases import symmetric

MATRIX = symmetric(torch.linspace(-2, 7, 12))
SCALE = torch.linspace(0.1, 3, 12).double()


def dense(matrix: Tensor, scale: Tensor) -> Tensor:
    root = torch.diag(scale**-0.5)
    return root @ matrix @ root


class TestIt(OperatorConformance):
    def operator(self) -> Operator:
        return Preconditioned(LambdaOperator(lambda v: MATRIX @ v, 12), SCALE)

    def dense(self) -> Tensor:
        return dense(MATRIX, SCALE)


def test_of_a_network_it_is_the_dense_matrix_with_its_parts() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs, labels = torch.randn(40, 3).double(), torch.arange(40) % 3
    H = Hessian(model, nn.CrossEntropyLoss(), Batches(inputs, labels, batch_size=10))
    scale = torch.rand(H.shape[0]).double() + 0.01
    op = Preconditioned(H, scale)
    wanted = dense(H.to_dense(), scale)
    torch.testing.assert_close(op.to_dense(), wanted)
    found = top_eigenpairs(op, k=2, tol=1e-9)
    torch.testing.assert_close(found.values, torch.linalg.eigvalsh(wanted).flip(0)[:2])
    v = torch.randn(H.shape[0]).double()
    product = op.product(v, onto=torch.eye(H.shape[0]).double()[:2])
    assert product.forms is not None
    assert product.onto is not None
    assert float(product.forms.mean()) == pytest.approx(float(v @ wanted @ v))
    torch.testing.assert_close(product.onto.mean(0), (wanted @ v)[:2])
    samples = op.sample_forms(v)
    assert samples is not None
    assert float(samples.mean()) == pytest.approx(float(v @ wanted @ v))


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_adam_diverges_just_above_the_bound(beta1: float) -> None:
    """The second moments are frozen: β₂ is the largest number below one, and bias is corrected long ago."""
    eps, second = 1e-3, torch.tensor([4.0, 0.25, 1e-4, 9.0]).double()
    scale = second.sqrt() + eps
    H = symmetric(torch.tensor([1.0, 2.0, 3.0, 5.0]))[:4, :4].double()
    top = float(
        top_eigenpairs(Preconditioned(LambdaOperator(lambda v: H @ v, 4), scale), tol=1e-10).values[0]
    )
    assert largest_stable_adaptive(1e-3, beta1=0.9) == pytest.approx(38 / 1e-3)  # Cohen et al. 2022
    for size, diverges in ((0.98, False), (1.02, True)):
        rate = size * largest_stable_adaptive(1.0, beta1=beta1) / top
        w = nn.Parameter(torch.full((4,), 1e-12).double())
        adam = torch.optim.Adam([w], lr=rate, betas=(beta1, 1 - 2**-53), eps=eps)
        adam.state[w] = {
            "step": torch.tensor(1e18), "exp_avg": torch.zeros(4).double(), "exp_avg_sq": second.clone()
        }  # fmt: skip
        steps = 0
        while steps < 600 and float(w.detach().norm()) < 1e-6:
            w.grad = H @ w.detach()
            adam.step()
            steps += 1
        torch.testing.assert_close(adam.state[w]["exp_avg_sq"], second)
        assert (float(w.detach().norm()) > 1e-9) is diverges


def test_a_scale_that_is_not_positive_is_refused() -> None:
    op = LambdaOperator(lambda v: MATRIX @ v, 12)
    with pytest.raises(UserError, match="positive and finite"):
        Preconditioned(op, torch.zeros(12))
    with pytest.raises(UserError, match=r"expected \(12,\)"):
        Preconditioned(op, torch.ones(3))
