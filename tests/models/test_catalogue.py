import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedscope.checkpoints.file.schema import ModelSpec
from fedscope.data.sets.dataset_catalogue import DATASETS
from fedscope.errors import UserError
from fedscope.models.catalogue import NETWORKS, build, outline
from fedscope.models.network_summary import summary
from fedscope.models.resnet import ResNet, blocks
from fedscope.models.transformer import VisionTransformer


def network(name: str, classes: int = 100, channels: int = 3, seed: int = 0, **given: Any) -> nn.Module:
    return build(name, classes, channels, torch.Generator().manual_seed(seed), **given)


@cache
def drawn(name: str) -> nn.Module:
    """A network as the catalogue draws it; not to be changed."""
    return network(name, NETWORKS[name].classes, NETWORKS[name].channels)


@pytest.mark.parametrize(
    ("name", "classes", "given", "parameters", "norm", "products", "tensors"),
    [
        ("resnet56_bottleneck", 100, {}, 614_452, 8_992, 87_237_632, 176),
        ("resnet56_bottleneck", 10, {}, 591_322, 8_992, 87_214_592, 176),
        ("resnet56_bottleneck", 100, {"head": True}, 746_036, 8_992, 87_368_704, 180),
        ("resnet18", 200, {}, 11_279_112, 9_600, 1_813_663_744, 62),
        ("resnet18", 200, {"head": True}, 11_621_896, 9_600, 1_814_005_760, 66),
        ("resnet8", 100, {}, 81_140, 480, 12_245_248, 23),
        ("resnet20", 10, {}, 269_722, 1_376, 40_551_040, 59),
        ("resnet20", 10, {"shortcut": "A"}, 269_722, 1_376, 40_551_040, 59),
        ("resnet20", 10, {"shortcut": "B"}, 272_474, 1_568, 40_813_184, 65),
        ("convnet_cifar", 10, {}, 797_962, 0, 14_693_248, 10),
        ("convnet_cifar", 100, {}, 815_332, 0, 14_710_528, 10),
        ("convnet_tiny_gn", 200, {}, 2_447_688, 384, 56_634_368, 18),
        ("resnet18_gn", 100, {}, 11_220_132, 9_600, 555_468_800, 62),
        ("lenet5", 10, {}, 62_006, 0, 651_720, 10),
        ("cnn_mnist", 10, {}, 1_663_370 + 2 * 25 * 32, 0, 13_527_552, 8),
        ("vit_cifar", 100, {}, 2_710_948, 4_992, 173_132_544, 80),
        ("digit_cnn6", 10, {}, 14_219_210, 5_632, 47_767_552, 22),
        ("alexnet_bn", 10, {}, 57_063_498, 18_688, 923_069_120, 30),
    ],
)
def test_published_sizes(
    name: str, classes: int, given: dict[str, Any], parameters: int, norm: int, products: int, tensors: int
) -> None:
    model, record = outline(name, classes, 3, **given), NETWORKS[name]
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(list(model.parameters())) == tensors
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm
    assert sum(p.numel() for m in model.modules() if isinstance(m, kinds) for p in m.parameters()) == norm
    found = summary(model, 3, record.side)
    assert (found.parameters, found.norm_affine, found.tensors) == (parameters, norm, tensors)
    assert found.multiply_accumulates == products
    assert found.norm_statistics == (0 if name in ("convnet_tiny_gn", "resnet18_gn", "vit_cifar") else norm)


SHAPES = {
    "resnet56_bottleneck": [(16, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (100,)],
    "resnet18": [(64, 56, 56), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7), (200,)],
    "resnet20": [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (10,)],
    "resnet8": [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (100,)],
    "resnet_digits": [(8, 8, 8), (8, 8, 8), (16, 4, 4), (32, 2, 2), (10,)],
    "convnet_cifar": [(64, 14, 14), (1600,), (384,), (192,), (100,)],
    "convnet_tiny_gn": [(64, 32, 32), (64, 16, 16), (4096,), (512,), (384,), (200,)],
    "digit_cnn6": [(64, 14, 14), (64, 7, 7), (6272,), (2048,), (512,), (10,)],
    "alexnet_bn": [
        (64, 31, 31), (192, 15, 15), (384, 15, 15), (256, 15, 15), (9216,), (4096,), (4096,), (10,),
    ],
    "mlp_digits": [(32,), (10,)],
    "resnet18_gn": [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4), (100,)],
    "lenet5": [(6, 14, 14), (400,), (120,), (84,), (10,)],
    "cnn_mnist": [(32, 14, 14), (3136,), (512,), (10,)],
    "vit_cifar": [(192, 8, 8), (65, 192), (192,), (100,)],
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_on_the_way(name: str) -> None:
    record = NETWORKS[name]
    found = summary(outline(name, record.classes, record.channels), record.channels, record.side)
    assert found.input == (record.channels, record.side, record.side)
    assert [stage.output for stage in found.stages] == SHAPES[name]


def test_the_layers_in_words() -> None:
    def words(name: str, head: bool = False) -> dict[str, str]:
        stages = summary(outline(name, 10, 3, head=head), 3, NETWORKS[name].side).stages
        return {stage.name: stage.layers for stage in stages}

    assert words("resnet18", head=True) | words("convnet_tiny_gn") | words("alexnet_bn") == {
        "stem": "conv 7×7/2 to 64, BatchNorm, ReLU, max-pool 3×3/2",
        "layer1": "2 × block of 2 × conv 3×3 to 64 (identity)",
        "layer2": "block of conv 3×3/2 to 128, conv 3×3 to 128 (projection), "
        "block of 2 × conv 3×3 to 128 (identity)",
        "layer3": "block of conv 3×3/2 to 256, conv 3×3 to 256 (projection), "
        "block of 2 × conv 3×3 to 256 (identity)",
        "layer4": "block of conv 3×3/2 to 512, conv 3×3 to 512 (projection), "
        "block of 2 × conv 3×3 to 512 (identity)",
        "head": "linear to 512, ReLU, linear to 256",
        "fc": "linear to 10",
        "conv1": "conv 11×11/4 to 64, BatchNorm, ReLU, max-pool 3×3/2",
        "conv2": "conv 5×5 to 192, BatchNorm, ReLU, max-pool 3×3/2",
        "conv3": "conv 3×3 to 384, BatchNorm, ReLU",
        "conv4": "conv 3×3 to 256, BatchNorm, ReLU",
        "conv5": "conv 3×3 to 256, BatchNorm, ReLU, max-pool 3×3/2, average pool to 6×6, Flatten",
        "fc1": "linear to 4096, BatchNorm, ReLU",
        "fc2": "linear to 4096, BatchNorm, ReLU",
        "fc3": "linear to 10",
    }
    assert words("convnet_tiny_gn")["conv1"] == "conv 3×3 to 64, GroupNorm of 4, ReLU, max-pool 2×2/2"
    assert words("resnet20")["layer2"].startswith("block of conv 3×3/2 to 32, conv 3×3 to 32 (zero-padding)")


def test_the_guide_tells_these_sizes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)( --shortcut B)?` \|.*\| (\d+)×(\d+)×\d+ \|(.*)\|$", page, re.MULTILINE)
    assert {row[0] for row in rows} == set(NETWORKS)
    for name, projects, channels, side, numbers in rows:
        classes, *told = (int(number.replace(",", "")) for number in numbers.split("|"))
        model = outline(name, classes, int(channels), shortcut="B" if projects else None)
        found = summary(model, int(channels), int(side))
        assert told == [found.parameters, found.norm_affine, found.multiply_accumulates]


def test_multiply_accumulates_by_hand() -> None:
    model, count = network("resnet56_bottleneck"), 0

    def hook(module: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal count
        if isinstance(module, nn.Conv2d):
            count += module.weight.numel() * out.shape[2] * out.shape[3]
        elif isinstance(module, nn.Linear):
            count += module.weight.numel()

    for module in model.modules():
        module.register_forward_hook(hook)
    model.eval()(torch.zeros(1, 3, 32, 32))
    assert count == 87_237_632


@pytest.mark.parametrize("name", NETWORKS)
def test_the_sides_it_says(name: str) -> None:
    record = NETWORKS[name]
    assert record.takes(record.side)
    model = outline(name, 10, 3).eval()
    least = record.side if record.least is None else record.least
    for side in (least, least + 13, 2 * least):
        if record.takes(side):
            assert model(torch.zeros(2, 3, side, side, device="meta")).shape == (2, 10)
    if least > 1:
        assert not record.takes(least - 1)
        with pytest.raises(RuntimeError):
            model(torch.zeros(2, 3, least - 1, least - 1, device="meta"))
    assert record.takes(10_000) == (record.least is not None)


def test_the_sides_in_words() -> None:
    said = {name: record.sides for name, record in NETWORKS.items()}
    assert said["resnet18"] == "images of any size"
    assert said["alexnet_bn"] == "images of 63 pixels or more"
    assert said["digit_cnn6"] == "28-pixel images"


def test_the_digits_net_is_small_residual_and_normalised() -> None:
    model = network("resnet_digits", 10, 1)
    assert sum(p.numel() for p in model.parameters()) < 100_000
    assert any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    record = NETWORKS[name]
    second, other = (network(name, record.classes, record.channels, seed).state_dict() for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    first = drawn(name).state_dict()
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)
    assert all(t.isfinite().all() for t in first.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_initial_weights_follow_their_rule(name: str) -> None:
    model = drawn(name)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and isinstance(model, ResNet):  # normal, variance 2/fan-out
            outputs, _, height, width = layer.weight.shape
            bar = 5 / layer.weight.numel() ** 0.5
            assert layer.weight.std().item() == pytest.approx(
                (2 / (outputs * height * width)) ** 0.5, rel=bar
            )
            assert abs(layer.weight.mean().item()) < bar * layer.weight.std().item()
            assert layer.bias is None
        elif isinstance(layer, nn.Conv2d | nn.Linear):  # uniform within ±1/√fan-in
            bound = layer.weight[0].numel() ** -0.5
            assert layer.bias is not None
            for tensor in (layer.weight, layer.bias):
                assert tensor.abs().max().item() <= bound
                assert tensor.abs().mean().item() == pytest.approx(bound / 2, rel=3 / tensor.numel() ** 0.5)
        elif isinstance(layer, VisionTransformer):  # normal, deviation 0.02, cut at ±2
            for embedding in (layer.token, layer.position):
                assert embedding.std().item() == pytest.approx(0.02, rel=4 * (2 * embedding.numel()) ** -0.5)
                assert abs(embedding.mean().item()) < 4 * 0.02 * embedding.numel() ** -0.5
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            held = {key.removeprefix("running_"): tensor for key, tensor in layer.state_dict().items()}
            assert all((held[key] == 1).all() for key in ("weight", "var") if key in held)
            assert not any(held[key].any() for key in ("bias", "mean", "num_batches_tracked") if key in held)


PINNED = {  # Σ|w| of the parameters at seed 0, as drawn since the first checkpoint; and a hash of the names
    "resnet_digits": (1742.9116, "84cd7e1dc4262619"),
    "mlp_digits": (158.85595, "ea546dce3ba5c7df"),
    "convnet_cifar": (11822.789, "ac2e313b7209a51d"),
    "convnet_tiny_gn": (24618.929, "0d29d06d9081820b"),
    "resnet8": (4641.4758, "7257103cfeaabae3"),
    "resnet20": (14969.98, "79f2af4b435c33df"),
    "resnet56_bottleneck": (52977.828, "ab8e70c3c492a5f9"),
    "resnet18": (226806.17, "382c473202f45f29"),
    "digit_cnn6": (99762.08, "7be06712c40d8a5a"),
    "alexnet_bn": (363516.74, "a1e426dff47b1683"),
    "resnet18_gn": (225546.79, "cfcc0ef3b184b17c"),
    "lenet5": (1829.5705, "bddeabccd24eec6d"),
    "cnn_mnist": (15443.545, "5cf223821fff572b"),
    "vit_cifar": (84290.541, "f8c59688320624e5"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_names_and_first_weights_stay(name: str) -> None:
    """Checkpoints are read by these names, and runs are repeated from these weights."""
    total, names = PINNED[name]
    model = drawn(name)
    listed = "\n".join(f"{key} {tuple(tensor.shape)}" for key, tensor in model.state_dict().items())
    assert hashlib.sha256(listed.encode()).hexdigest()[:16] == names
    assert sum(p.double().abs().sum().item() for p in model.parameters()) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "given", "count"),
    [
        ("resnet18", {}, 122),
        ("resnet18", {"head": True}, 126),
        ("resnet20", {}, 116),
        ("resnet20", {"shortcut": "B"}, 128),
        ("digit_cnn6", {}, 37),
        ("alexnet_bn", {}, 51),
    ],
)
def test_state_dicts_have_three_buffers_per_batch_norm(name: str, given: dict[str, Any], count: int) -> None:
    assert len(outline(name, 10, 3, **given).state_dict()) == count


@pytest.mark.parametrize("name", ["resnet18", "resnet20", "digit_cnn6"])
def test_training_normalises_by_the_batch_and_evaluation_by_what_was_seen(name: str) -> None:
    model = build(name, 10, 3, torch.Generator().manual_seed(0))
    x = torch.randn(4, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    buffers = dict(model.named_buffers())
    fresh = {key: tensor.clone() for key, tensor in buffers.items()}
    with torch.no_grad():
        trained = model.train()(x)
        assert all(not torch.equal(tensor, fresh[key]) for key, tensor in buffers.items())
        seen = {key: tensor.clone() for key, tensor in buffers.items()}
        out = model.eval()(x)
        torch.testing.assert_close(model(x[1:3]), out[1:3], rtol=1e-4, atol=1e-4)  # each sample by itself
    assert all(torch.equal(tensor, seen[key]) for key, tensor in buffers.items())
    assert not torch.allclose(trained, out, rtol=0.01)


def test_unknown_model() -> None:
    with pytest.raises(UserError, match=r"'resnet50'.*'resnet20'"):
        network("resnet50")
    with pytest.raises(UserError, match="resnet_digits"):
        network("elsewhere")


@pytest.mark.parametrize("name", [name for name, record in NETWORKS.items() if record.residual])
def test_a_head_is_drawn_last(name: str) -> None:
    plain, projected = network(name).state_dict(), network(name, head=True).state_dict()
    narrower = ["fc.weight", "fc.bias"] if name.startswith("resnet18") else []  # of 256 features
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


def test_every_data_sets_network_is_published_for_it() -> None:
    named = {data for record in NETWORKS.values() for data in record.data}
    assert named <= DATASETS.keys()
    for name, record in DATASETS.items():
        assert NETWORKS[record.model].takes(record.side), name
        assert {name, record.folder} & set(NETWORKS[record.model].data)


def test_a_shortcut_is_chosen_where_there_is_a_choice() -> None:
    spec = ModelSpec(name="resnet20", classes=10, channels=3)
    assert spec.shortcut is None
    padded, chosen = network("resnet20").state_dict(), network("resnet20", shortcut="A").state_dict()
    assert all(torch.equal(padded[key], chosen[key]) for key in padded)
    spec = ModelSpec(name="resnet20", classes=10, channels=3, shortcut="B")
    model = build(**spec.model_dump(), generator=torch.Generator().manual_seed(0))
    extra = set(model.state_dict()) - set(padded)
    assert {key.rsplit(".", 2)[0] for key in extra} == {"layer2.0.shortcut", "layer3.0.shortcut"}


def test_what_a_network_cannot_have_is_refused() -> None:
    for name in ("resnet18", "convnet_cifar"):
        with pytest.raises(UserError, match=f"{name} .*'B'.*resnet20"):
            network(name, shortcut="B")
    generator = torch.Generator()
    with pytest.raises(UserError, match=r"convnet_cifar .*head.* resnet56_bottleneck"):
        build("convnet_cifar", 10, 3, generator, head=True)
    with pytest.raises(UserError, match=r"Sequential .*residual network"):
        build("mlp_digits", 10, 1, generator, keep=0.9)
    with pytest.raises(UserError, match=r"\(0, 1\].*1\.5"):
        build("resnet_digits", 10, 1, generator, keep=1.5)
