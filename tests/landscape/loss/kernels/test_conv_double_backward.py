"""The convolution's three maps and their derivatives against finite differences and PyTorch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedscope.landscape.loss.kernels.conv_double_backward import LAYOUTS, Layer, convolved

# A layer, and the shape of its input.
LAYERS: dict[str, tuple[Callable[[], Layer], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(2, 3, 3, padding=1), (3, 2, 4, 4)),
    "no bias": (lambda: nn.Conv2d(2, 3, 2, bias=False), (3, 2, 4, 4)),
    "stride": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 2, 6, 5)),
    "pointwise": (lambda: nn.Conv2d(4, 2, 1, stride=2), (3, 4, 4, 4)),
    "dilation": (lambda: nn.Conv2d(1, 2, 3, padding=2, dilation=2), (2, 1, 4, 4)),
    "groups": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2), (2, 4, 3, 3)),
    "depthwise": (lambda: nn.Conv2d(3, 3, 3, groups=3), (2, 3, 4, 4)),
    "one dimension": (lambda: nn.Conv1d(2, 3, 3, stride=2), (3, 2, 7)),
    "three dimensions": (lambda: nn.Conv3d(1, 2, 2), (2, 1, 3, 3, 3)),
    "circular": (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 2, 4, 4)),
    "same": (lambda: nn.Conv2d(2, 2, 3, padding="same"), (2, 2, 4, 4)),
    "one image": (lambda: nn.Conv2d(2, 2, 3), (2, 4, 4)),
}


def _leaves(name: str) -> tuple[Layer, list[Tensor]]:
    torch.manual_seed(0)
    layer = LAYERS[name][0]().double()
    tensors = [torch.randn(LAYERS[name][1]).double(), layer.weight, layer.bias]
    return layer, [t.detach().requires_grad_() for t in tensors if t is not None]


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_derivatives_are_the_limits_of_difference_quotients(name: str) -> None:
    layer, leaves = _leaves(name)

    def function(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return torch.tanh(convolved(layer, x, w, b, "channels last"))

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_second_derivatives_in_float32_are_those_of_pytorch_in_float64(
    name: str, chosen: tuple[int, ...]
) -> None:
    layer, leaves = _leaves(name)
    chosen = tuple(i for i in chosen if i < len(leaves)) or (0,)
    found = []
    for dtype in (torch.float64, torch.float32):
        tensors = [t.detach().to(dtype).requires_grad_(i in chosen) for i, t in enumerate(leaves)]
        x, w, b = (*tensors, None)[:3]
        assert x is not None
        assert w is not None
        layout = LAYOUTS[len(chosen) % 2]
        exact = dtype == torch.float64
        z = layer._conv_forward(x, w, b) if exact else convolved(layer, x, w, b, layout)
        assert exact or layout == "channels last" or z.is_contiguous()
        ours = [tensors[i] for i in chosen]
        first = torch.autograd.grad((z.tanh() ** 2).sum(), ours, create_graph=True)
        generator = torch.Generator().manual_seed(1)
        along = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(dtype) for t in first]
        found.append([t.detach().double() for t in (*first, *torch.autograd.grad(first, ours, along))])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=2e-5 * float(1 + expected.abs().max()))
