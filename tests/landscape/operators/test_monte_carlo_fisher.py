"""Fisher matrices of drawn labels against the Gauss–Newton matrix that they estimate without bias."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.errors import UserError
from fedscope.landscape import Batches, GaussNewton, MonteCarloFisher
from fedscope.landscape.operators.monte_carlo_fisher import _categorical
from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm
from tests.landscape.cases import Case, mlp

_DRAWS = 60


class _Tokens(nn.Module):
    """(n, 5) tokens to logits of 4 classes, classes last, or along dimension 1."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.embedding, self.out, self.last = nn.Embedding(6, 3), nn.Linear(3, 4), last

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.embedding(tokens).tanh())
        return logits if self.last else logits.mT


def _tokens(last: bool) -> tuple[nn.Module, Callable[..., Tensor], Batches]:
    """With padding: the two batches have 16 and 24 tokens that count."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(6, (9, 5), generator=generator)
    targets = torch.randint(4, (9, 5), generator=generator)
    targets[:4, 4:] = -100
    targets[0, 1], targets[5, 0] = -100, -100

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.movedim(-1, 1) if last else outputs, targets)

    torch.manual_seed(0)
    return _Tokens(last).double(), loss, Batches(inputs, targets, 4)


def _is_unbiased(model: nn.Module, loss: Callable[..., Tensor], batches: Batches, samples: int = 8) -> None:
    """Compare vᵀFv over many seeds with vᵀGv, in their own standard error, which is small enough to tell."""
    exact = GaussNewton(model, loss, batches)
    v = torch.randn(exact.shape[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = exact.product(v)
    assert wanted.forms is not None
    draws, by_batch = [], []
    for seed in range(_DRAWS):
        found = MonteCarloFisher(model, loss, batches, samples=samples, seed=seed).product(v)
        assert found.forms is not None
        draws.append(float(v @ found.vector))
        by_batch.append(found.forms)
    for values, value in [(torch.tensor(draws), float(v @ wanted.vector))] + [
        (torch.stack(by_batch)[:, b], float(wanted.forms[b])) for b in range(len(wanted.forms))
    ]:
        stderr = float(values.double().std()) / math.sqrt(_DRAWS)
        assert stderr < 0.1 * value
        assert abs(float(values.double().mean()) - value) < 3 * stderr


def test_it_is_the_gauss_newton_matrix_on_average(case: Case) -> None:
    _is_unbiased(case.model, case.loss_fn, case.batches)


@pytest.mark.parametrize("last", [True, False])
def test_it_is_of_tokens_too(last: bool) -> None:
    _is_unbiased(*_tokens(last))


def test_it_is_of_soft_targets_too() -> None:
    case = mlp()
    targets = torch.rand(23, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _is_unbiased(case.model, cross_entropy, Batches(case.inputs, targets / targets.sum(1, keepdim=True), 12))


def test_the_mean_over_all_labels_is_the_hessian_in_the_outputs() -> None:
    outputs = torch.randn(1, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    every = _categorical(1).residuals(outputs, torch.zeros(1, dtype=torch.long), torch.arange(4)[None])[0]
    chances = outputs[0].softmax(0)
    torch.testing.assert_close(every.T @ (chances[:, None] * every), chances.diag() - chances.outer(chances))


def test_labels_are_drawn_as_often_as_the_model_says() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -3.0])
    drawn = _categorical(1).draw(logits, 40_000, torch.Generator().manual_seed(0))
    shares, chances = drawn.bincount(minlength=4) / 40_000, logits.softmax(0)
    assert ((shares - chances).abs() < 3 * (chances * (1 - chances) / 40_000).sqrt()).all()


def test_many_labels_give_the_matrix() -> None:
    case = mlp()
    exact = GaussNewton(case.model, case.loss_fn, case.batches).to_dense()
    errors = []
    for samples in (100, 10_000):
        found = MonteCarloFisher(case.model, case.loss_fn, case.batches, samples=samples).to_dense()
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors[1] < 0.02
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.3)


def test_it_is_one_fixed_matrix_however_samples_are_batched() -> None:
    case = mlp()
    v = torch.ones(51, dtype=torch.float64)

    def product(batch_size: int = 8, **options: object) -> Tensor:
        batches = Batches(case.inputs, case.targets, batch_size)
        return MonteCarloFisher(case.model, case.loss_fn, batches, **options).matvec(v)  # type: ignore[arg-type]

    first = product()
    assert torch.equal(first, product(seed=0))
    assert torch.equal(first, product(generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(first, product(seed=1))
    for options in ({"batch_size": 23}, {"deal": 2}, {"memory": 4096}):
        torch.testing.assert_close(product(**options), first)
    operator = MonteCarloFisher(case.model, case.loss_fn, case.batches, memory=0)
    assert torch.equal(operator.matvec(v), operator.matvec(v))
    other = MonteCarloFisher(case.model, case.loss_fn, case.batches, seed=1)
    assert operator.fingerprint != other.fingerprint


def test_it_is_positive_and_of_as_many_ranks_as_labels() -> None:
    case = mlp()
    few = Batches(case.inputs[:4], case.targets[:4])
    values = torch.linalg.eigvalsh(MonteCarloFisher(case.model, case.loss_fn, few, samples=2).to_dense())
    assert (values > -1e-12).all()
    assert int((values > 1e-10).sum()) <= 8


def test_samples_have_forms_of_their_own_and_the_model_is_not_changed() -> None:
    case = mlp()
    before = case.weights.clone()
    operator = MonteCarloFisher(case.model, case.loss_fn, case.batches, samples=3)
    v = torch.ones(51, dtype=torch.float64)
    forms = operator.sample_forms(v)
    assert forms is not None
    torch.testing.assert_close(forms.mean(), v @ operator.matvec(v))
    alone = operator.product(v).forms
    assert alone is not None
    torch.testing.assert_close(forms[:8].mean(), alone[0])
    assert torch.equal(case.weights, before)
    expected = GaussNewton(case.model, case.loss_fn, case.batches).gradient()
    torch.testing.assert_close(operator.gradient(), expected)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        nn.MultiMarginLoss(),
        lambda x, y: mse_loss(x, nn.functional.one_hot(y, 3).double()),
    ],
)
def test_a_loss_that_is_no_likelihood_of_its_targets_is_refused(loss: Callable[..., Tensor]) -> None:
    case = mlp()
    with pytest.raises(UserError, match="neither the mean cross-entropy nor the mean squared"):
        MonteCarloFisher(case.model, loss, case.batches)


def test_what_makes_no_sense_is_refused() -> None:
    case = mlp()
    with pytest.raises(UserError, match="at least 1 label"):
        MonteCarloFisher(case.model, case.loss_fn, case.batches, samples=0)
    with pytest.raises(UserError, match="generator or seed, not both"):
        MonteCarloFisher(case.model, case.loss_fn, case.batches, seed=0, generator=torch.Generator())


def test_weights_of_classes_are_refused_wherever_they_show() -> None:
    """The first samples are all of one class."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2).double()
    batches = Batches(torch.randn(64, 4).double(), torch.arange(64) // 32, 32)
    MonteCarloFisher(model, cross_entropy, batches)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]).double())
    for refused in (
        lambda: MonteCarloFisher(model, weighted, batches), lambda: fisher_rao_norm(model, weighted, batches),
    ):  # fmt: skip
        with pytest.raises(UserError, match="without class weights"):
            refused()


@pytest.mark.parametrize("place", [0, 20])
def test_labels_that_are_ignored_by_another_number_are_refused(place: int) -> None:
    torch.manual_seed(0)
    targets = torch.arange(32) % 3
    targets[place] = 255
    batches = Batches(torch.randn(32, 4).double(), targets, 16)
    with pytest.raises(UserError, match="no labels can be drawn"):
        MonteCarloFisher(nn.Linear(4, 3).double(), nn.CrossEntropyLoss(ignore_index=255), batches)


def test_outputs_of_one_number_a_sample_are_drawn_for() -> None:
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).double()
    column = nn.Sequential(*list(flat)[:3])
    inputs, targets = torch.randn(12, 3).double(), torch.randn(12).double()
    ours = MonteCarloFisher(flat, mse_loss, Batches(inputs, targets), seed=3)
    theirs = MonteCarloFisher(column, mse_loss, Batches(inputs, targets[:, None]), seed=3)
    v = torch.randn(ours.shape[0]).double()
    torch.testing.assert_close(ours.matvec(v), theirs.matvec(v))
    torch.testing.assert_close(ours.sample_forms(v), theirs.sample_forms(v))
