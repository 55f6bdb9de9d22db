import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from fedscope.models.catalogue import build
from fedscope.models.resnet import Block, ResNet, basic, blocks, bottleneck, small_stem


def network(name: str = "resnet_digits", head: bool = False) -> ResNet:
    channels = 1 if name == "resnet_digits" else 3
    model = build(name, 10, channels, torch.Generator().manual_seed(0), head=head)
    assert isinstance(model, ResNet)
    return model


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether all parameters and buffers have the same bits."""
    twin = other.state_dict()
    return all(torch.equal(tensor, twin[name]) for name, tensor in one.state_dict().items())


@pytest.fixture(params=["identity", "projection"])
def block(request: pytest.FixtureRequest) -> Block:
    """A block whose branch and statistics are not those of a fresh one."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        block = bottleneck(16, 4, 1, first=False) if request.param == "identity" else basic(16, 8, 2, True)
        for _ in range(3):
            block(torch.randn(8, 16, 4, 4))
    return block


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 16, 4, 4, generator=torch.Generator().manual_seed(1))


def test_a_dropped_branch_is_not_evaluated(block: Block, x: Tensor) -> None:
    branch, shortcut = copy.deepcopy(block.branch), copy.deepcopy(block.shortcut)
    block.gate = False
    out = block(x.requires_grad_())
    assert torch.equal(out, relu(shortcut(x)))
    out.sum().backward()
    assert all(parameter.grad is None for parameter in block.branch.parameters())
    assert all(parameter.grad is not None for parameter in block.shortcut.parameters())
    assert same(block.branch, branch)
    assert same(block.shortcut, shortcut)  # both ran once: its statistics are updated
    block.gate = True
    block(x)
    assert not same(block.branch, branch)


@pytest.mark.parametrize("keep", [1.0, 0.3])
def test_training_does_not_rescale(block: Block, x: Tensor, keep: float) -> None:
    twin = copy.deepcopy(block)
    block.keep = keep
    assert torch.equal(block(x), relu(twin.branch(x) + twin.shortcut(x)))


@pytest.mark.parametrize("keep", [1.0, 0.3])
def test_evaluation_weighs_the_branch(block: Block, x: Tensor, keep: float) -> None:
    block.eval()
    block.keep, block.gate = keep, False  # the gate is training's
    out = block(x)
    torch.testing.assert_close(out, relu(keep * block.branch(x) + block.shortcut(x)))
    assert torch.equal(out, block(x))
    if keep == 1:
        assert torch.equal(out, relu(block.branch(x) + block.shortcut(x)))


def test_a_branch_of_zeros_leaves_the_shortcut(block: Block, x: Tensor) -> None:
    last = block.branch[-1]
    assert isinstance(last, nn.BatchNorm2d)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    block.eval().keep = 0.7
    assert torch.equal(block(x), relu(block.shortcut(x)))


def test_depth_is_not_in_the_state_dict_but_in_a_copy() -> None:
    model = network()
    names = list(model.state_dict())
    first = blocks(model)[0]
    first.keep, first.gate = 0.5, False
    assert list(model.state_dict()) == names
    copied = blocks(copy.deepcopy(model))[0]
    assert (copied.keep, copied.gate) == (0.5, False)
    assert (Block.keep, Block.gate) == (1.0, True)
    model.load_state_dict(network().state_dict())
    assert first.keep == 0.5


def test_blocks_and_groups_are_in_order() -> None:
    model = network("resnet56_bottleneck")
    assert model.groups == [model.layer1, model.layer2, model.layer3]
    assert blocks(model) == [block for group in model.groups for block in group]
    assert len(blocks(model)) == 18
    assert blocks(nn.Sequential(nn.Linear(2, 2))) == []


def test_the_classifier_reads_the_head() -> None:
    model = network(head=True).eval()
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    features = x
    for part in (model.stem, *model.groups):
        features = part(features)
    weights = dict(model.named_parameters())
    hidden = relu(linear(features.mean((2, 3)), weights["head.0.weight"], weights["head.0.bias"]))
    embedding = linear(hidden, weights["head.2.weight"], weights["head.2.bias"])
    expected = linear(embedding, weights["fc.weight"], weights["fc.bias"])
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(("features", "embedding"), [(32, 32), (512, 256)])
def test_the_embedding_has_at_most_256_features(features: int, embedding: int) -> None:
    model = ResNet(small_stem(3, features), [], features, 10, head=True)
    assert model.head is not None
    shapes = [tuple(p.shape) for p in model.head.parameters() if p.dim() == 2]
    assert shapes == [(features, features), (embedding, features)]
    assert model(torch.zeros(2, 3, 4, 4)).shape == (2, 10)


def test_a_plain_network_has_no_head() -> None:
    names = [name for name, _ in network().named_modules()]
    assert not [name for name in names if "head" in name]
