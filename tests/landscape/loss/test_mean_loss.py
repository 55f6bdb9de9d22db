"""What a loss must be, in Python as on the command line."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian, random_directions, surface
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.mean_loss import NoMeanError, check_mean, is_mean
from fedscope.landscape.operators.empirical_risk import LossOperator
from tests.landscape.cases import convnet, mlp

KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher]


def summed(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="sum")


def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs * (1 + 0.1 * torch.rand(())), targets)


class Remembering(nn.Module):
    """Weights by how often it was called."""

    calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return cross_entropy(outputs, targets) * self.calls


REFUSED = [(summed, "sum over samples"), (noisy, "randomness"), (Remembering(), "state")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loss", "says"), REFUSED)
def test_sums_and_random_losses_are_refused_at_the_first_use(
    kind: type[LossOperator], loss: Callable[[Tensor, Tensor], Tensor], says: str
) -> None:
    case = mlp()
    operator = kind(case.model, loss, case.batches)
    with pytest.raises(UserError, match=says):
        operator.matvec(torch.ones(51))


@pytest.mark.parametrize(("loss", "says"), REFUSED)
def test_surfaces_and_the_command_line_refuse_them_too(
    loss: Callable[[Tensor, Tensor], Tensor], says: str
) -> None:
    case = mlp()
    with pytest.raises(UserError, match=says):
        surface(case.model, loss, case.batches, directions=random_directions(case.model), grid=3)
    with pytest.raises(UserError, match=says):
        check_mean(case.model, loss, case.batches)


def test_a_sum_is_refused_where_batches_cannot_be_cut() -> None:
    case = convnet()
    whole = Batches(case.inputs, case.targets, 26)
    with pytest.raises(UserError, match="26 samples"):
        Hessian(case.model, summed, whole, bn="batch").matvec(torch.ones(81))


def test_what_is_no_plain_mean_is_measured() -> None:
    case = mlp()
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64))
    for kind in KINDS:
        assert kind(case.model, weighted, case.batches).matvec(torch.ones(51)).isfinite().all()


def test_a_loss_that_writes_to_what_it_is_given_is_no_random_one() -> None:
    case = mlp()

    def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.mul_(2), targets)

    twice = Hessian(case.model, lambda o, t: cross_entropy(2 * o, t), case.batches)
    v = torch.ones(51, dtype=torch.float64)
    found = Hessian(case.model, scaled, case.batches).matvec(v)
    torch.testing.assert_close(found, twice.matvec(v))


def sorted_by_class(samples: int = 64) -> tuple[nn.Module, Batches]:
    torch.manual_seed(0)
    inputs, targets = torch.randn(samples, 4).double(), torch.arange(samples) // (samples // 2)
    return nn.Linear(4, 2).double(), Batches(inputs, targets, samples // 2)


def test_weights_of_classes_are_noticed_where_samples_lie_by_class() -> None:
    model, batches = sorted_by_class()
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]).double())
    assert is_mean(FlatLoss(model, cross_entropy, batches))
    assert not is_mean(FlatLoss(model, weighted, batches))
    check_mean(model, cross_entropy, batches)
    with pytest.raises(NoMeanError, match="no mean over samples"):
        check_mean(model, weighted, batches)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_rounding_of_short_numbers_is_no_difference(dtype: torch.dtype) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)).to(dtype)
        batches = Batches(torch.randn(128, 8).to(dtype), torch.randint(5, (128,)), 64)
        check_mean(model, cross_entropy, batches)
        assert is_mean(FlatLoss(model, cross_entropy, batches))


def unlabelled(count: int, first: int) -> Batches:
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(count) % 4
    targets[:first] = -100
    return Batches(inputs, targets, batch_size=64)


def test_rows_without_a_label_are_noticed_where_they_lie_together() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    assert not is_mean(FlatLoss(model, cross_entropy, unlabelled(512, 256)))
    assert is_mean(FlatLoss(model, cross_entropy, unlabelled(512, 0)))


@pytest.mark.parametrize("count", [64, 96])
def test_a_sum_is_refused_where_the_first_rows_tell_nothing(count: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    with pytest.raises(UserError, match="is a sum over samples"):
        check_mean(model, summed, unlabelled(count, 8))
    with pytest.raises(UserError, match="is a sum over samples"):
        Hessian(model, summed, unlabelled(count, 8)).matvec(torch.ones(16))
