"""Networks against their equations, written out on the state dict alone."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, linear, max_pool2d

from fedscope.models.catalogue import build

Weights = dict[str, Tensor]


def relu(x: Tensor) -> Tensor:
    return x * (x > 0)


def normed(w: Weights, name: str, x: Tensor, *, train: bool) -> Tensor:
    """BatchNorm by the moments of the batch, or by the running ones; without these GroupNorm of 2 groups."""
    if f"{name}.running_mean" not in w:
        halves = x.reshape(len(x), 2, -1, *x.shape[2:])
        centred = halves - halves.mean((2, 3, 4), keepdim=True)
        spread = (centred.square().mean((2, 3, 4), keepdim=True) + 1e-5).sqrt()
        scale, shift = w[f"{name}.weight"][:, None, None], w[f"{name}.bias"][:, None, None]
        return (centred / spread).flatten(1, 2) * scale + shift
    places = (0, 2, 3) if x.dim() == 4 else (0,)
    mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_var"]
    if train:
        mean = x.mean(places)
        variance = (x.movedim(1, -1) - mean).square().flatten(0, -2).mean(0)
    out = (x.movedim(1, -1) - mean) / (variance + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]
    return out.movedim(-1, 1)


def basic(w: Weights, name: str, x: Tensor, stride: int, *, train: bool) -> Tensor:
    """Two 3×3 convolutions and a shortcut: a projection where there are weights, else option A."""
    out = conv2d(x, w[f"{name}.branch.0.weight"], stride=stride, padding=1)
    out = relu(normed(w, f"{name}.branch.1", out, train=train))
    out = normed(w, f"{name}.branch.4", conv2d(out, w[f"{name}.branch.3.weight"], padding=1), train=train)
    if f"{name}.shortcut.0.weight" in w:
        projected = conv2d(x, w[f"{name}.shortcut.0.weight"], stride=stride)
        return relu(out + normed(w, f"{name}.shortcut.1", projected, train=train))
    shortcut = torch.zeros_like(out)
    shortcut[:, : x.shape[1]] = avg_pool2d(x, 1, stride)
    return relu(out + shortcut)


def bottleneck(w: Weights, name: str, x: Tensor, stride: int, *, train: bool) -> Tensor:
    """1×1, 3×3 with the stride, 1×1; a projection where there are weights, else the identity."""
    out = relu(normed(w, f"{name}.branch.1", conv2d(x, w[f"{name}.branch.0.weight"]), train=train))
    out = conv2d(out, w[f"{name}.branch.3.weight"], stride=stride, padding=1)
    out = relu(normed(w, f"{name}.branch.4", out, train=train))
    out = normed(w, f"{name}.branch.7", conv2d(out, w[f"{name}.branch.6.weight"]), train=train)
    if f"{name}.shortcut.0.weight" in w:
        x = conv2d(x, w[f"{name}.shortcut.0.weight"], stride=stride)
        x = normed(w, f"{name}.shortcut.1", x, train=train)
    return relu(out + x)


def resnet(name: str, w: Weights, x: Tensor, *, train: bool) -> Tensor:
    block = bottleneck if name == "resnet56_bottleneck" else basic
    large = name == "resnet18"
    x = conv2d(x, w["stem.0.weight"], stride=2 if large else 1, padding=3 if large else 1)
    x = relu(normed(w, "stem.1", x, train=train))
    if large:
        x = max_pool2d(x, 3, stride=2, padding=1)
    groups, each = {
        "resnet18": (4, 2),
        "resnet18_gn": (4, 2),
        "resnet20": (3, 3),
        "resnet56_bottleneck": (3, 6),
    }[name]
    for group in range(1, groups + 1):
        for place in range(each):
            stride = 2 if group > 1 and place == 0 else 1
            x = block(w, f"layer{group}.{place}", x, stride, train=train)
    x = x.sum((2, 3)) / x[0, 0].numel()
    if "head.0.weight" in w:
        x = relu(x @ w["head.0.weight"].T + w["head.0.bias"])
        x = x @ w["head.2.weight"].T + w["head.2.bias"]
    return x @ w["fc.weight"].T + w["fc.bias"]


def digit_cnn6(w: Weights, x: Tensor, *, train: bool) -> Tensor:
    for layer in (1, 2, 3):
        x = conv2d(x, w[f"conv{layer}.weight"], w[f"conv{layer}.bias"], padding=2)
        x = relu(normed(w, f"bn{layer}", x, train=train))
        x = max_pool2d(x, 2) if layer < 3 else x
    x = x.flatten(1)
    for layer in (1, 2):
        x = linear(x, w[f"fc{layer}.weight"], w[f"fc{layer}.bias"])
        x = relu(normed(w, f"bn{layer + 3}", x, train=train))
    return linear(x, w["fc3.weight"], w["fc3.bias"])


def convolutions_and_layers(w: Weights, x: Tensor, *, train: bool) -> Tensor:
    """Two convolutions, pooled, and linear layers: LeNet-5, and with padding FedAvg's."""
    for layer in (1, 2):
        padding = 2 if "fc3.weight" not in w else 0
        x = max_pool2d(relu(conv2d(x, w[f"conv{layer}.weight"], w[f"conv{layer}.bias"], padding=padding)), 2)
    x, last = x.flatten(1), sum(key.startswith("fc") for key in w) // 2
    for layer in range(1, last + 1):
        x = x @ w[f"fc{layer}.weight"].T + w[f"fc{layer}.bias"]
        x = relu(x) if layer < last else x
    return x


def layer_normed(w: Weights, name: str, z: Tensor) -> Tensor:
    centred = z - z.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / spread * w[f"{name}.weight"] + w[f"{name}.bias"]


def vit_cifar(w: Weights, x: Tensor, *, train: bool) -> Tensor:
    """Dosovitskiy et al. 2021, Eqs. 1 to 8, patch by patch and head by head."""
    kernel = w["patches.weight"].flatten(1)
    patches = [x[:, :, i : i + 4, j : j + 4].flatten(1) for i in range(0, 32, 4) for j in range(0, 32, 4)]
    tokens = [w["token"][0, 0].expand(len(x), -1), *(p @ kernel.T + w["patches.bias"] for p in patches)]
    z = torch.stack(tokens, 1) + w["position"]
    for index in range(6):
        block = f"blocks.{index}"
        into = layer_normed(w, f"{block}.norm1", z)
        u = into @ w[f"{block}.attention.qkv.weight"].T + w[f"{block}.attention.qkv.bias"]
        heads = []
        for head in range(3):
            q, k, v = (u[..., 192 * part + 64 * head : 192 * part + 64 * (head + 1)] for part in range(3))
            scores = torch.exp(torch.einsum("btd,bsd->bts", q, k) / 8)
            heads.append((scores / scores.sum(-1, keepdim=True)) @ v)
        out = torch.cat(heads, -1) @ w[f"{block}.attention.out.weight"].T
        z = z + out + w[f"{block}.attention.out.bias"]
        hidden = (
            layer_normed(w, f"{block}.norm2", z) @ w[f"{block}.mlp.0.weight"].T + w[f"{block}.mlp.0.bias"]
        )
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        z = z + hidden @ w[f"{block}.mlp.2.weight"].T + w[f"{block}.mlp.2.bias"]
    return layer_normed(w, "norm", z)[:, 0] @ w["fc.weight"].T + w["fc.bias"]


def alexnet_bn(w: Weights, x: Tensor, *, train: bool) -> Tensor:
    for layer, (stride, padding) in enumerate([(4, 2), (1, 2), (1, 1), (1, 1), (1, 1)], 1):
        x = conv2d(x, w[f"conv{layer}.weight"], w[f"conv{layer}.bias"], stride, padding)
        x = relu(normed(w, f"bn{layer}", x, train=train))
        x = max_pool2d(x, 3, 2) if layer in (1, 2, 5) else x
    assert x.shape[2] == 3  # of 127-pixel images; every pixel stands for four of the 6×6
    x = x.repeat_interleave(2, 2).repeat_interleave(2, 3).flatten(1)
    for layer in (1, 2):
        x = linear(x, w[f"fc{layer}.weight"], w[f"fc{layer}.bias"])
        x = relu(normed(w, f"bn{layer + 5}", x, train=train))
    return linear(x, w["fc3.weight"], w["fc3.bias"])


CASES = [
    ("resnet20", {}, 32),
    ("resnet20", {"shortcut": "A", "head": True}, 9),
    ("resnet20", {"shortcut": "B"}, 32),
    ("resnet18", {}, 64),
    ("resnet18", {"head": True}, 37),
    ("resnet56_bottleneck", {}, 16),
    ("digit_cnn6", {}, 28),
]
WITHOUT_STATISTICS: list[tuple[str, dict[str, object], int]] = [
    ("resnet18_gn", {}, 16), ("lenet5", {}, 32), ("cnn_mnist", {}, 28), ("vit_cifar", {}, 32),
    ("alexnet_bn", {}, 127),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "side", "train"),
    [
        *((*case, train) for case in CASES for train in (False, True)),
        *((*case, False) for case in WITHOUT_STATISTICS),
    ],
)
def test_the_network_is_its_equations(name: str, given: dict[str, object], side: int, train: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    model = build(name, 10, 3, generator, **given).double()  # type: ignore[arg-type]
    for key, tensor in model.state_dict().items():  # no two channels alike, nothing at its default
        if tensor.dim() == 1:
            tensor += 0.3 * torch.rand(tensor.shape, dtype=tensor.dtype, generator=generator)
        assert key.endswith("tracked") or tensor.any()
    w = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    x = torch.randn(3, 3, side, side, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        found = model.train(train)(x)
    forward = {
        "digit_cnn6": digit_cnn6, "alexnet_bn": alexnet_bn, "vit_cifar": vit_cifar,
        "lenet5": convolutions_and_layers, "cnn_mnist": convolutions_and_layers,
    }.get(name)  # fmt: skip
    expected = forward(w, x, train=train) if forward else resnet(name, w, x, train=train)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert found.std(0).min() > 1e-4  # the images matter
