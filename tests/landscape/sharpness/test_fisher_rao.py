from typing import Literal, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton
from fedscope.landscape.loss.mean_loss import is_mean
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.sharpness.fisher_rao import by_sample, fisher_rao_norm
from tests import tiers
from tests.landscape.sharpness.cases import labelled, relu_net, whole

LAYERS = 3


def by_theorem(net: nn.Module, batches: Batches, labels: Literal["empirical", "exact"]) -> Tensor:
    """Each sample's part by theorem 3.1 of Liang et al., from the outputs alone."""
    x, y = whole(batches)
    f: Tensor = net(x).detach()
    p = f.softmax(1)
    mean = (p * f).sum(1)
    if labels == "empirical":
        return LAYERS**2 * (mean - f[torch.arange(len(y)), y]) ** 2
    return LAYERS**2 * ((p * f**2).sum(1) - mean**2)


@pytest.mark.parametrize("labels", ["empirical", "exact"])
def test_it_is_what_the_theorem_says_of_relu_networks(labels: Literal["empirical", "exact"]) -> None:
    net, batches = relu_net(), labelled()
    parts = by_theorem(net, batches, labels)
    found = fisher_rao_norm(net, cross_entropy, batches, labels=labels)
    assert found.value == pytest.approx(float(parts.mean()), rel=1e-6)
    assert found.stderr_data == pytest.approx(float(parts.std()) / 24**0.5, rel=1e-6)
    assert found.stderr_draws == 0
    torch.testing.assert_close(list(found.batches), [float(p.mean()) for p in parts.split(8)])
    assert found.cost.products == 1


def test_drawn_labels_have_the_exact_norm_on_average() -> None:
    net, batches = relu_net(), labelled()
    exact = fisher_rao_norm(net, cross_entropy, batches)
    found = fisher_rao_norm(net, cross_entropy, batches, labels="drawn", draws=16, seed=3)
    low, high = found.interval()
    assert low < exact.value < high
    assert 0 < found.stderr_draws < 0.2 * exact.value
    assert found.stderr_data == pytest.approx(exact.stderr_data, rel=0.5)
    assert len(found.draws) == 16


def test_other_losses_go_by_dense_gradients() -> None:
    net, batches = relu_net(), labelled()
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))
    found = fisher_rao_norm(net, weighted, batches, labels="empirical")
    w, total = torch.cat([p.detach().flatten() for p in net.parameters()]), 0.0
    share = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    for x, y in batches:
        for one, label in zip(x, y, strict=True):
            loss = len(y) * share[label] / share[y].sum() * cross_entropy(net(one[None]), label[None])
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
            total += float(w @ g) ** 2 / 24
    assert found.value == pytest.approx(total, rel=1e-6)
    squares = Batches(whole(batches)[0], torch.zeros(24, 3, dtype=torch.float64), 8)
    own = fisher_rao_norm(net, mse_loss, squares)
    f = net(whole(batches)[0]).detach()
    assert own.value == pytest.approx(LAYERS**2 * 2 / 3 * float((f**2).sum(1).mean()), rel=1e-6)


def test_what_is_no_likelihood_is_refused() -> None:
    net, batches = relu_net(), labelled()
    with pytest.raises(UserError, match="no labels can be drawn"):
        fisher_rao_norm(net, nn.CrossEntropyLoss(label_smoothing=0.1), batches)
    with pytest.raises(UserError, match="choose empirical, exact or drawn"):
        fisher_rao_norm(net, cross_entropy, batches, labels="true")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least 2 labels"):
        fisher_rao_norm(net, cross_entropy, batches, labels="drawn", draws=1)


class _Samples:
    """What an estimate of N samples is told of its operator."""

    def __init__(self, samples: int) -> None:
        self.weights, self.finite_population = (samples,), 1.0


def test_the_noise_of_drawn_labels_is_not_counted_among_the_samples() -> None:
    forms = torch.tensor([[1, 3, 5, 7], [3, 3, 5, 9]], dtype=torch.float64)
    found = by_sample(forms, cast(LossOperator, _Samples(4)), 0)
    noise = (2 + 0 + 0 + 2) / 2 / 4**2  # the samples' variances over two draws, of the mean over both
    assert found.stderr_draws == pytest.approx(noise**0.5)
    assert found.stderr_data == pytest.approx((7 / 4 - noise) ** 0.5)  # 2, 3, 5, 8 have the variance 7


@pytest.mark.drawn
def test_its_intervals_cover() -> None:
    """Linear regression of unit noise: 2·(xᵀw)² of each sample by exact labels, χ² in the population."""
    draws = tiers.draws()
    own, hits, g = _Samples(64), 0, torch.Generator().manual_seed(0)
    for _ in range(draws):
        parts = 2 * torch.randn(1, 64, generator=g, dtype=torch.float64).square()
        low, high = by_sample(parts, cast(LossOperator, own), 0).population_interval()
        hits += low <= 2 <= high
    assert tiers.nominal(hits, draws)


@pytest.mark.drawn
def test_the_interval_of_drawn_labels_covers() -> None:
    draws = tiers.draws()
    net, batches, g = relu_net(), labelled(), torch.Generator().manual_seed(0)
    f = net(whole(batches)[0]).detach()
    p = f.softmax(1)
    mean, hits = (p * f).sum(1), 0
    exact = LAYERS**2 * float(((p * f**2).sum(1) - mean**2).mean())
    for _ in range(draws):
        labels = torch.multinomial(p, 4, replacement=True, generator=g).T  # (4, 24)
        forms = LAYERS**2 * (f.T.gather(0, labels) - mean) ** 2
        low, high = by_sample(forms, cast(LossOperator, _Samples(24)), 0).interval()
        hits += low <= exact <= high
    assert tiers.nominal(hits, draws)


@pytest.mark.parametrize("labels", ["exact", "empirical"])
def test_log_probabilities_have_the_norm_of_their_logits(labels: Literal["empirical", "exact"]) -> None:
    net, batches = relu_net(), labelled()
    ended = nn.Sequential(net, nn.LogSoftmax(1))
    wanted = fisher_rao_norm(net, cross_entropy, batches, labels=labels)
    found = fisher_rao_norm(ended, nn.NLLLoss(), batches, labels=labels)
    assert found.value == pytest.approx(wanted.value, rel=1e-9)
    assert found.stderr_data == pytest.approx(wanted.stderr_data, rel=1e-6)


@pytest.mark.parametrize("labels", ["exact", "empirical"])
def test_a_row_without_a_label_leaves_the_norm_to_the_batches(labels: Literal["empirical", "exact"]) -> None:
    net = relu_net()
    x, y = whole(labelled())
    x, y = x.repeat(20, 1), y.repeat(20)
    y[0] = -100
    found = fisher_rao_norm(net, cross_entropy, Batches(x, y, batch_size=96), labels=labels)
    kind = EmpiricalFisher if labels == "empirical" else GaussNewton
    op = kind(net, cross_entropy, Batches(x, y, batch_size=96))
    wanted = float(op.loss.center @ op.matvec(op.loss.center))
    assert found.value == pytest.approx(wanted, rel=1e-9)


def test_a_rare_class_with_a_weight_is_not_taken_for_a_mean_over_samples() -> None:
    net = relu_net()
    x, y = whole(labelled())
    x, y = x.repeat(20, 1), (y % 2).repeat(20)
    y[[1, 200, 400]] = 2
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 20.0], dtype=torch.float64))
    batches = Batches(x, y, batch_size=96)
    op = EmpiricalFisher(net, loss, batches)
    assert is_mean(op.loss)  # as far as 24 samples tell
    found = fisher_rao_norm(net, loss, batches, labels="empirical")
    wanted = float(op.loss.center @ op.matvec(op.loss.center))
    assert found.value == pytest.approx(wanted, rel=1e-9)
