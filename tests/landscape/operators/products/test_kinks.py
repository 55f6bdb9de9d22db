"""Kinked functions taken on the piece that they were on, against closed forms and exact products."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedscope.landscape import Batches, Hessian
from fedscope.landscape.operators.products.kinks import Kinks

HERE = torch.tensor([[-4.0, -0.3, 0.2, 5.0]])
THERE = torch.tensor([[1.0, 1.0, -2.0, -1.0]])  # on the other side of each kink


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (F.relu, [0, 0, -2, -1]),
        (torch.relu, [0, 0, -2, -1]),
        (nn.ReLU(), [0, 0, -2, -1]),
        (lambda x: x.relu(), [0, 0, -2, -1]),
        (lambda x: x.clamp(min=0), [0, 0, -2, -1]),
        (lambda x: F.leaky_relu(x, 0.5), [0.5, 0.5, -2, -1]),
        (nn.ReLU6(), [0, 0, -2, -1]),
        (nn.Hardtanh(-1, 1), [-1, 1, -2, 1]),
        (nn.Hardshrink(0.25), [1, 1, 0, -1]),
        (nn.Threshold(0.0, 7.0), [7, 7, -2, -1]),
        (torch.abs, [-1, -1, -2, -1]),
        (lambda x: abs(x), [-1, -1, -2, -1]),
        (lambda x: F.relu(x.clone(), inplace=True), [0, 0, -2, -1]),
        (lambda x: x.clone().relu_(), [0, 0, -2, -1]),
        (lambda x: F.max_pool1d(x, 2), [1, -1]),
        (nn.AdaptiveMaxPool1d(1), [-1]),
        (lambda x: F.max_pool2d(x[None], (1, 4)).flatten(), [-1]),
        (torch.tanh, torch.tanh(THERE)[0].tolist()),
    ],
)
def test_the_piece_stays(function: Callable[[Tensor], Tensor], expected: list[float]) -> None:
    pieces = Kinks()
    with pieces:
        found = function(HERE.clone())
    assert torch.equal(found, function(HERE.clone()))
    with pieces.rewind():
        moved = function(THERE.clone())
    torch.testing.assert_close(moved.flatten(), torch.tensor(expected, dtype=torch.float32))


def test_in_place_writes_in_place() -> None:
    pieces, x = Kinks(), HERE.clone()
    with pieces:
        F.relu(x, inplace=True)
    assert torch.equal(x, F.relu(HERE))
    y = THERE.clone()
    with pieces.rewind():
        F.relu(y, inplace=True)
    assert y.tolist() == [[0, 0, -2, -1]]


def test_the_indices_of_a_pool_are_given_where_they_are_asked_for() -> None:
    pieces = Kinks()
    with pieces:
        F.max_pool1d(HERE, 2)
    with pieces.rewind():
        _, indices = F.max_pool1d(THERE, 2, return_indices=True)
    assert indices.tolist() == [[1, 3]]


def test_what_was_not_recorded_is_itself() -> None:
    pieces = Kinks()
    with pieces:
        torch.relu(HERE)
    assert pieces.any
    with pieces.rewind():
        torch.relu(THERE)
        torch.testing.assert_close(torch.relu(THERE), THERE.clamp(min=0))
    with pieces.rewind():  # of another shape
        torch.testing.assert_close(torch.relu(THERE[:, :2]), THERE[:, :2].clamp(min=0))


def test_a_step_over_many_kinks_is_no_curvature() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 12), nn.LeakyReLU(0.2), nn.Linear(12, 3),
    )  # fmt: skip
    data = Batches(torch.randn(60, 1, 8, 8), torch.randint(3, (60,)), 20)
    H = Hessian(model, nn.CrossEntropyLoss(), data, products="finite-differences")
    exact = Hessian(model.double(), nn.CrossEntropyLoss(), data)
    v = torch.randn(H.shape[0])
    product, expected = H.product(v), exact @ v.double()
    away = float((product.vector.double() - expected).norm())
    assert away <= product.error < 2e-3 * float(expected.norm())
