import pytest
import torch
from torch import nn

from fedscope.checkpoints.schema import ModelSpec
from fedscope.errors import UserError
from fedscope.models.catalogue import NETWORKS, build
from fedscope.models.resnet import blocks


def network(name: str, classes: int = 100, channels: int = 3, seed: int = 0, head: bool = False) -> nn.Module:
    return build(name, classes, channels, torch.Generator().manual_seed(seed), head=head)


@pytest.mark.parametrize(
    ("name", "classes", "head", "parameters", "norm", "tensors"),
    [
        ("resnet56_bottleneck", 100, False, 614_452, 8_992, 176),
        ("resnet56_bottleneck", 10, False, 591_322, 8_992, 176),
        ("resnet56_bottleneck", 100, True, 746_036, 8_992, 180),
        ("convnet_cifar", 100, False, 815_332, 0, 10),
        ("convnet_cifar", 10, False, 797_962, 0, 10),
        ("convnet_tiny_gn", 200, False, 2_447_688, 384, 18),
    ],
)
def test_published_sizes(
    name: str, classes: int, head: bool, parameters: int, norm: int, tensors: int
) -> None:
    model = network(name, classes, head=head)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(list(model.parameters())) == tensors
    normalisations = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]
    assert sum(p.numel() for m in normalisations for p in m.parameters()) == norm


def test_resnet56_shapes_and_multiply_accumulates() -> None:
    model, count, shapes = network("resnet56_bottleneck"), 0, {}

    def hook(module: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal count
        if isinstance(module, nn.Conv2d):
            count += module.weight.numel() * out.shape[2] * out.shape[3]
        elif isinstance(module, nn.Linear):
            count += module.weight.numel()

    for name, module in model.named_modules():
        module.register_forward_hook(hook)
        if name.startswith("layer") and "." not in name:
            module.register_forward_hook(
                lambda _m, _i, out, name=name: shapes.update({name: tuple(out.shape[1:])})
            )
    model.eval()(torch.zeros(1, 3, 32, 32))
    assert count == 87_237_632
    assert shapes == {"layer1": (64, 32, 32), "layer2": (128, 16, 16), "layer3": (256, 8, 8)}


def test_the_digits_net_is_small_residual_and_normalised() -> None:
    model = network("resnet_digits", 10, 1)
    assert sum(p.numel() for p in model.parameters()) < 100_000
    assert any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second, other = (
        network(name).state_dict(),
        network(name).state_dict(),
        network(name, seed=1).state_dict(),
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)
    assert all(t.isfinite().all() for t in first.values())


def test_initialisation_scales() -> None:
    resnet, convnet = network("resnet56_bottleneck"), network("convnet_cifar")
    weight = resnet.get_parameter("layer3.3.branch.3.weight")  # 3×3, 64 → 64
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    bound = (3 * 25) ** -0.5
    assert convnet.get_parameter("conv1.weight").abs().max().item() == pytest.approx(bound, rel=0.01)
    assert convnet.get_parameter("conv1.bias").abs().max().item() <= bound


def test_unknown_model() -> None:
    with pytest.raises(UserError, match="choose one of resnet_digits"):
        network("resnet50")


@pytest.mark.parametrize("name", [name for name, record in NETWORKS.items() if record.residual])
def test_a_head_is_drawn_last(name: str) -> None:
    plain, projected = network(name).state_dict(), network(name, head=True).state_dict()
    narrower = ["fc.weight", "fc.bias"] if name == "resnet18" else []  # it reads 256 features, not 512
    assert all(torch.equal(projected[key], plain[key]) for key in plain if key not in narrower)
    assert [key for key in projected if key not in plain] == [
        "head.0.weight",
        "head.0.bias",
        "head.2.weight",
        "head.2.bias",
    ]
    bound = projected["head.0.weight"].shape[1] ** -0.5
    assert projected["head.0.weight"].abs().max().item() == pytest.approx(bound, rel=0.01)


def test_a_specification_builds_its_network() -> None:
    spec = ModelSpec(name="resnet_digits", classes=10, channels=1, head=True, keep=0.5, schedule="paper")
    generator = torch.Generator().manual_seed(0)
    model = build(**spec.model_dump(), generator=generator)
    assert [block.keep for block in blocks(model)] == pytest.approx([5 / 6, 4 / 6, 1 / 2])
    plain, other = network("resnet_digits", 10, 1, head=True), torch.Generator().manual_seed(0)
    assert all(torch.equal(t, plain.state_dict()[name]) for name, t in model.state_dict().items())
    build("resnet_digits", 10, 1, other, head=True)
    assert torch.equal(generator.get_state(), other.get_state())  # keep and schedule draw nothing


def test_what_a_network_cannot_have_is_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(UserError, match=r"convnet_cifar has no projection head; .* resnet56_bottleneck"):
        build("convnet_cifar", 10, 3, generator, head=True)
    with pytest.raises(UserError, match="Sequential has none; choose a residual network"):
        build("mlp_digits", 10, 1, generator, keep=0.9)
    with pytest.raises(UserError, match=r"lies in \(0, 1\], 1.5 does not"):
        build("resnet_digits", 10, 1, generator, keep=1.5)
