"""A function that is computed again: its derivatives, and what its graphs hold on to."""

import torch
from torch import Tensor

from fedscope.landscape.loss.recomputed.blocks import recomputed


def function(x: Tensor, w: Tensor, unused: Tensor) -> tuple[Tensor, ...]:
    inner = torch.tanh(x @ w)
    return inner.exp() * x, inner.sum(1)


def saved(build: object) -> int:
    """Return the numbers that a gradient's graph has saved."""
    kept: dict[int, Tensor] = {}

    def seen(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        build()  # type: ignore[operator]
    return sum(tensor.numel() for tensor in kept.values())


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w, unused = (torch.randn(shape, dtype=torch.float64) for shape in ((9, 4), (4, 4), (2,)))
    return x.requires_grad_(), w.requires_grad_(), unused.requires_grad_()


def test_both_derivatives_are_those_of_the_function() -> None:
    x, w, unused = tensors()
    found = []
    for again in (False, True):
        outputs = recomputed(function, x, w, unused) if again else function(x, w, unused)
        loss = (outputs[0] ** 2).sum() + outputs[1].cos().sum()
        slopes = torch.autograd.grad(loss, (x, w, unused), create_graph=True, materialize_grads=True)
        along = [torch.ones_like(slope) for slope in slopes[:2]]
        found.append([loss, *slopes, *torch.autograd.grad(slopes[:2], (x, w), along)])
    for plain, own in zip(*found, strict=True):
        torch.testing.assert_close(own, plain)


def test_autograds_own_check_passes() -> None:
    x, w, unused = tensors()
    own = lambda *inputs: recomputed(function, *inputs)  # noqa: E731
    assert torch.autograd.gradcheck(own, (x, w, unused))
    assert torch.autograd.gradgradcheck(own, (x, w, unused))


def test_the_graph_of_a_gradient_holds_the_inputs_alone() -> None:
    x, w, unused = tensors()

    def slopes(again: bool) -> None:
        outputs = recomputed(function, x, w, unused) if again else function(x, w, unused)
        loss = outputs[0].sum() + outputs[1].sum()
        torch.autograd.grad(loss, (x, w), create_graph=True)

    inputs, cotangents = 36 + 16 + 2, 36 + 9
    assert saved(lambda: slopes(again=True)) <= inputs + cotangents < saved(lambda: slopes(again=False))


def test_a_function_that_is_linear_has_no_second_derivative() -> None:
    x, *_ = tensors()
    (y,) = recomputed(lambda x: (2 * x,), x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(slope, torch.full_like(x, 2))
    assert torch.equal(torch.autograd.grad(slope.sum(), x)[0], torch.zeros_like(x))
