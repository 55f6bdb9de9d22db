import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.landscape.gradients import inner_products
from fedscope.landscape.gradients.client_noise import client_gradient_noise, gradient_noise
from fedscope.landscape.loss.mean_loss import NoMeanError

GENERATOR = torch.Generator().manual_seed(0)
SAMPLES = [
    (torch.randn(n, 5, generator=GENERATOR).double(), torch.randint(3, (n,), generator=GENERATOR))
    for n in (24, 36)
]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def sample_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return (N, n), by another path through PyTorch."""
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, own, (x[None],)), y[None])

    found = vmap(grad(loss), (None, 0, 0))(weights, inputs, targets)
    return torch.cat([piece.flatten(1) for piece in found.values()], 1)


def test_single_samples_give_the_sample_covariance() -> None:
    model, (inputs, targets) = network(), SAMPLES[0]
    rows = sample_gradients(model, inputs, targets)
    found = gradient_noise(model, cross_entropy, Batches(inputs, targets, batch_size=1))
    trace = float(torch.cov(rows.T).trace())
    square = float(rows.mean(0).square().sum()) - trace / 24
    assert found.trace.value == pytest.approx(trace, rel=1e-9)
    assert found.square.value == pytest.approx(square, rel=1e-9)
    assert found.scale.value == pytest.approx(trace / square, rel=1e-9)
    assert (found.samples, found.batches) == (24, 24)


def test_clients_differ_by_what_their_samples_gradients_say() -> None:
    model = network()
    clients = [Batches(*pair, batch_size=1) for pair in SAMPLES]
    found = client_gradient_noise(model, cross_entropy, clients)
    rows = [sample_gradients(model, *pair) for pair in SAMPLES]
    p = torch.tensor([24, 36], dtype=torch.float64) / 60
    means = torch.stack([own.mean(0) for own in rows])
    noise = torch.stack([torch.cov(own.T).trace() / len(own) for own in rows])
    gap = float(p @ (means - p @ means).square().sum(1)) - float((p * (1 - p)) @ noise)
    whole = float((p @ means).square().sum()) - float(p**2 @ noise)
    assert found.between.value == pytest.approx(gap, rel=1e-9)
    assert found.whole.square.value == pytest.approx(whole, rel=1e-9)
    assert found.dissimilarity.value == pytest.approx(1 + gap / whole, rel=1e-9)
    assert (found.gradients, found.passes) == (60, 1)
    assert torch.allclose(found.weights, p)


def test_samples_are_dealt_and_gradients_counted() -> None:
    model = network()
    found = client_gradient_noise(model, cross_entropy, SAMPLES, weights=[1, 1], groups=3)
    assert [one.batches for one in found.clients] == [3, 3]
    assert found.gradients == 6
    assert found.weights.tolist() == [0.5, 0.5]
    many = client_gradient_noise(model, cross_entropy, SAMPLES, groups=100)
    assert [one.batches for one in many.clients] == [3, 4]  # of 8 samples or more
    again = client_gradient_noise(model, cross_entropy, SAMPLES, weights=[1, 1], groups=3)
    assert again.between.value == found.between.value


def test_gradients_that_do_not_fit_are_evaluated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    plain = client_gradient_noise(model, cross_entropy, SAMPLES)
    monkeypatch.setattr(inner_products, "KEPT", 10)
    seen: list[tuple[int, int | None]] = []
    twice = client_gradient_noise(model, cross_entropy, SAMPLES, progress=lambda *step: seen.append(step))
    assert (twice.gradients, twice.passes) == (2 * plain.gradients, 2)
    assert seen == [(done, twice.gradients) for done in range(1, twice.gradients + 1)]
    assert twice.between.value == pytest.approx(plain.between.value, rel=1e-12)
    assert twice.relative.interval() == pytest.approx(plain.relative.interval(), rel=1e-9)


def test_the_model_is_left_alone_and_what_is_not_finite_stays_so() -> None:
    model = network().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs, targets = SAMPLES[0]
    found = gradient_noise(model, cross_entropy, (inputs * torch.nan, targets))
    assert math.isnan(found.scale.value)
    assert all(map(math.isnan, found.scale.interval()))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_bad_requests_are_refused() -> None:
    model = network()
    with pytest.raises(UserError, match="0 clients"):
        client_gradient_noise(model, cross_entropy, [])
    with pytest.raises(UserError, match="1 weights for 2 clients"):
        client_gradient_noise(model, cross_entropy, SAMPLES, weights=[1])
    with pytest.raises(UserError, match="sum over samples"):
        gradient_noise(model, nn.CrossEntropyLoss(reduction="sum"), SAMPLES[0])


def normalised() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()


@pytest.mark.parametrize("groups", [3, 16])
def test_the_network_is_that_of_the_batches_that_are_given(groups: int) -> None:
    model = normalised()
    batches = Batches(*SAMPLES[1], batch_size=36)
    found = gradient_noise(model, cross_entropy, batches, bn="recalibrate", groups=groups)
    op = Hessian(model, cross_entropy, batches, bn="recalibrate")
    square = float(op.gradient().square().sum())
    assert found.square.value + found.trace.value / 36 == pytest.approx(square, rel=1e-9)


def test_a_client_of_few_samples_is_recalibrated_on_all_of_them() -> None:
    inputs, targets = SAMPLES[0]
    few = Batches(inputs[:10], targets[:10], batch_size=10)
    found = gradient_noise(normalised(), cross_entropy, few, bn="recalibrate")
    assert found.batches == 10


def test_batches_that_share_their_statistics_are_not_dealt() -> None:
    found = gradient_noise(normalised(), cross_entropy, Batches(*SAMPLES[0], batch_size=24), bn="batch")
    assert found.batches == 1


def test_a_loss_with_class_weights_is_refused() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64))
    with pytest.raises(NoMeanError, match="class weights"):
        gradient_noise(network(), loss, Batches(*SAMPLES[0], batch_size=24))


@pytest.mark.parametrize("groups", [1, 2])
def test_fewer_groups_than_errors_need_are_dealt_all_the_same(groups: int) -> None:
    found = gradient_noise(network(), cross_entropy, Batches(*SAMPLES[1], batch_size=36), groups=groups)
    assert found.batches == groups


def test_a_network_without_batchnorm_is_dealt_whatever_is_asked_of_it() -> None:
    whole = Batches(*SAMPLES[0], batch_size=24)
    found, plain = (gradient_noise(network(), cross_entropy, whole, bn=bn) for bn in ("batch", "eval"))
    assert found.batches == 3
    assert found.trace == plain.trace
