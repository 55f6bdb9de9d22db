"""The empirical Fisher of losses that weight their samples, against gradients one by one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher
from tests.landscape.cases import convnet, mlp
from tests.landscape.operators.test_gauss_newton import dense_fisher

cross_entropy = nn.functional.cross_entropy
WEIGHTS = torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64)


def _dense(model: nn.Module, contributions: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """(1/n) Σ g̃ g̃ᵀ of contributions (n,) whose mean is the batch's loss."""
    losses, rows = contributions(model(inputs)), []
    for one in losses:
        pieces = torch.autograd.grad(one, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([piece.reshape(-1) for piece in pieces]))
    G = torch.stack(rows)
    return G.T @ G / len(G)


def _matrix(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], batches: Batches) -> Tensor:
    operator = EmpiricalFisher(model, loss, batches)
    return operator.matmat(torch.eye(operator.shape[0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("weights", "smoothing"),  # PyTorch's smoothing divides by a sample's own weight where it is alone
    [(WEIGHTS, 0.0), (WEIGHTS, 0.2), (torch.tensor([1.0, 5.0, 0.0], dtype=torch.float64), 0.0)],
)
def test_class_weights_are_respected(weights: Tensor, smoothing: float) -> None:
    """PyTorch divides by the batch's own sum of weights: contributions are n·w_y·ℓ / Σw."""
    case = mlp()
    loss = nn.CrossEntropyLoss(weight=weights, label_smoothing=smoothing)
    each = nn.CrossEntropyLoss(weight=weights, label_smoothing=smoothing, reduction="none")
    expected = torch.zeros(51, 51, dtype=torch.float64)
    for inputs, targets in case.batches:
        scale = len(targets) / weights[targets].sum()
        own = _dense(case.model, lambda o, t=targets, s=scale: s * each(o, t), inputs)  # type: ignore[misc]
        expected += len(targets) / 23 * own
    torch.testing.assert_close(_matrix(case.model, loss, case.batches), expected, rtol=1e-9, atol=1e-12)


def test_a_mean_over_tokens_weights_its_samples_and_one_of_padding_alone_has_no_part() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    tokens = torch.randint(5, (6, 4))
    labels = torch.randint(3, (6, 4))
    for row in range(6):
        labels[row, row % 5 :] = -100  # as many tokens as that; the first and the last but one: 0 and 4

    def loss(logits: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(logits.flatten(0, 1), wanted.flatten())

    def contributions(logits: Tensor) -> Tensor:
        each = cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(1)
        return len(labels) * each / (labels >= 0).sum()

    expected = _dense(model, contributions, tokens)
    found = _matrix(model, loss, Batches(tokens, labels))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_sample_without_a_gradient_changes_nothing() -> None:
    case = mlp()

    def capped(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, reduction="none").clamp(max=1.2).mean()

    losses = cross_entropy(case.model(case.inputs), case.targets, reduction="none")
    assert bool((losses > 1.2).any() & (losses < 1.2).any())
    expected = _dense(
        case.model,
        lambda o: cross_entropy(o, case.targets, reduction="none").clamp(max=1.2),
        case.inputs,
    )
    torch.testing.assert_close(_matrix(case.model, capped, case.batches), expected, rtol=1e-9, atol=1e-12)


def test_a_plain_mean_is_as_before() -> None:
    case = convnet()
    found = _matrix(case.model, case.loss_fn, case.batches)
    torch.testing.assert_close(found, dense_fisher(case), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: cross_entropy(o - o.mean(0), t),  # of what samples have in common
        lambda o, t: cross_entropy(o, t, reduction="none").logsumexp(0),  # weights that follow the outputs
    ],
)
def test_a_loss_that_is_no_weighted_mean_is_refused(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    case = mlp()
    with pytest.raises(UserError, match="no weighted mean"):
        EmpiricalFisher(case.model, loss, case.batches).matvec(torch.ones(51))


def test_batch_statistics_are_refused() -> None:
    case = convnet()
    whole = Batches(case.inputs, case.targets, 26)
    with pytest.raises(UserError, match="no sample has a gradient of its own"):
        EmpiricalFisher(case.model, case.loss_fn, whole, bn="batch")
    for module in case.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    with pytest.raises(UserError, match="running statistics"):
        EmpiricalFisher(case.model, case.loss_fn, whole)
