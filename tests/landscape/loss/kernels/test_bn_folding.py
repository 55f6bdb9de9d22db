"""Folded and otherwise sped-up networks against dense matrices of the network as it was."""

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.kernels import derivatives
from fedscope.landscape.operators.empirical_risk import LossOperator
from tests.landscape.cases import Case, convnet
from tests.landscape.nets import NETS, net_case
from tests.landscape.operators.test_gauss_newton import dense_fisher, dense_gauss_newton


def passed_through(loss: FlatLoss) -> list[_BatchNorm]:
    """The BatchNorms that have become the identity."""
    norms = [module for module in loss.model.modules() if isinstance(module, _BatchNorm)]
    probe = object()
    return [norm for norm in norms if "forward" in norm.__dict__ and _identity(norm, probe)]


def _identity(norm: nn.Module, probe: object) -> bool:
    try:
        return norm.forward(probe) is probe
    except AttributeError:
        return False


def loss_of(case: Case) -> FlatLoss:
    return FlatLoss(case.model, case.loss_fn, case.batches)


@pytest.mark.parametrize("name", sorted(NETS))
def test_hessian_of_a_folded_net_is_the_dense_one(name: str) -> None:
    case = net_case(name)
    expected = case.dense()
    found = case.operator.matmat(torch.eye(len(expected), dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["pre-activation", "tied"])
def test_gauss_newton_and_fisher_of_a_folded_net_are_the_dense_ones(name: str) -> None:
    case = net_case(name, samples=7, batch_size=3)
    for kind, oracle in ((GaussNewton, dense_gauss_newton), (EmpiricalFisher, dense_fisher)):
        expected = oracle(case)
        found = kind(case.model, case.loss_fn, case.batches).matmat(
            torch.eye(len(expected), dtype=torch.float64)
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", sorted(NETS))
def test_what_can_be_folded_is_and_nothing_else(name: str) -> None:
    assert len(passed_through(loss_of(net_case(name)))) == NETS[name][1]


def test_loss_values_are_the_models_own() -> None:
    for name in NETS:
        case = net_case(name)
        weights = case.weights + 0.1
        assert loss_of(case).value(weights) == pytest.approx(float(case.loss_at(weights)), rel=1e-12)


def test_a_part_of_the_parameters_is_a_block_of_the_whole() -> None:
    case = net_case("pre-activation")
    rows: list[int] = []
    expected, begin = case.dense(), 0
    for name, p in case.model.named_parameters():
        if name.startswith("bn2") or name == "conv1.weight":
            rows += range(begin, begin + p.numel())
        begin += p.numel()
    block = Hessian(case.model, case.loss_fn, case.batches, parameters=["bn2.*", "conv1.weight"])
    eye = torch.eye(len(rows), dtype=torch.float64)
    torch.testing.assert_close(block.matmat(eye), expected[rows][:, rows], rtol=1e-9, atol=1e-11)


def test_frozen_parameters_are_constants_in_the_fold() -> None:
    case = net_case("tied")
    case.model.get_parameter("bn1.weight").requires_grad_(False)
    case.model.get_parameter("one.weight").requires_grad_(False)
    expected = case.dense()
    found = case.operator.matmat(torch.eye(len(expected), dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_batch_statistics_are_not_folded() -> None:
    case = convnet()
    whole = Batches(case.inputs, case.targets, batch_size=26)
    assert not passed_through(FlatLoss(case.model, case.loss_fn, whole, bn="batch"))
    for kind in (Hessian, GaussNewton):
        operator = kind(case.model, case.loss_fn, whole, bn="batch")
        reference = case.model
        for module in reference.modules():
            if isinstance(module, _BatchNorm):
                module.running_mean = module.running_var = None
        again: LossOperator = kind(reference, case.loss_fn, whole)
        v = torch.ones(operator.shape[0], dtype=torch.float64)
        torch.testing.assert_close(operator.matvec(v), again.matvec(v))
        case = convnet()


def test_a_layer_that_someone_watches_is_not_folded() -> None:
    case, seen = convnet(), []
    convolution = next(m for m in case.model.modules() if isinstance(m, nn.Conv2d))

    def watch(_: nn.Module, args: object, output: Tensor) -> None:
        seen.append(output)

    convolution.register_forward_hook(watch)
    loss = loss_of(case)
    assert not passed_through(loss)
    seen.clear()
    loss.value(loss.center)
    torch.testing.assert_close(seen[0], convolution._conv_forward(case.inputs[:8], convolution.weight, None)
        + (0 if convolution.bias is None else convolution.bias.view(1, -1, 1, 1)))  # fmt: skip


class _Peeking(nn.Module):
    """Looks at the convolution's values where autograd does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        logits: Tensor = self.fc((torch.tanh(self.bn(z)) * z.detach().abs().mean()).mean((2, 3)))
        return logits


def test_a_fold_that_changes_the_outputs_is_undone() -> None:
    torch.manual_seed(0)
    model = _Peeking().double()
    inputs = torch.randn(6, 1, 5, 5, dtype=torch.float64)
    model(inputs)
    loss = FlatLoss(model, nn.functional.cross_entropy, Batches(inputs, torch.zeros(6, dtype=torch.long)))
    assert not any("forward" in module.__dict__ for module in loss.model.modules())


def test_float32_products_of_a_folded_net_agree_with_float64() -> None:
    case = net_case("strided")
    v = torch.randn(len(case.weights), generator=torch.Generator().manual_seed(0))
    exact = case.operator.matvec(v.double())
    single = Hessian(case.model.float(), case.loss_fn, case.batches).matvec(v)
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.norm()))


@pytest.mark.parametrize("name", ["layer_norm", "instance_norm"])
def test_norms_that_are_written_out_have_pytorchs_arguments(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(*of)) for of in ((derivatives, f"_{name}"), (functional, name)))
    assert [(p.name, p.default) for p in ours.parameters.values()] == [
        (p.name, p.default) for p in theirs.parameters.values()
    ]
