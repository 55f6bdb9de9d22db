"""Networks whose channels are tied in ways easy to get wrong, and the catalogue's at small widths."""

import torch
from torch import Tensor, nn

from fedscope.choices import Shortcut
from fedscope.models.catalogue import NETWORKS, outline
from fedscope.models.resnet import Padded

CASES: list[tuple[str, Shortcut | None, int]] = [  # network, shortcut, and by what its widths are divided
    ("resnet_digits", None, 2),
    ("mlp_digits", None, 2),
    ("convnet_cifar", None, 8),
    ("convnet_tiny_gn", None, 8),
    ("resnet8", "A", 2),
    ("resnet8", "B", 2),
    ("resnet20", "A", 4),
    ("resnet20", "B", 4),
    ("resnet56_bottleneck", None, 4),
    ("resnet18", None, 16),
    ("digit_cnn6", None, 16),
    ("alexnet_bn", None, 32),
]


def narrow(name: str, shortcut: Shortcut | None, by: int) -> tuple[nn.Module, Tensor]:
    """Return a network of the catalogue in float64 with its widths divided, and samples for it.

    Weights and statistics are random, so that no two channels are equal.
    """
    record = NETWORKS[name]
    model = outline(name, 10, record.channels, shortcut=shortcut)
    for path, module in list(model.named_modules()):
        if isinstance(module, Padded):
            module.outputs //= by
        elif (made := _narrowed(module, by, record.channels, record.side)) is not None:
            model.set_submodule(path, made)
    model = model.double().eval()
    randomise(model)
    side = record.side if record.least is None else max(record.least, 8)
    samples = torch.randn(4, record.channels, side, side, generator=torch.Generator().manual_seed(1))
    return model, samples.double()


def _narrowed(module: nn.Module, by: int, channels: int, side: int) -> nn.Module | None:
    match module:
        case nn.Conv2d():
            inputs = channels if module.in_channels == channels else module.in_channels // by
            made = nn.Conv2d(inputs, module.out_channels // by, 1, bias=module.bias is not None)
            for kept in ("kernel_size", "stride", "padding", "_reversed_padding_repeated_twice"):
                setattr(made, kept, getattr(module, kept))
            made.weight = nn.Parameter(torch.zeros(*made.weight.shape[:2], *module.weight.shape[2:]))
            return made
        case nn.Linear():
            inputs = (
                module.in_features if module.in_features == channels * side**2 else module.in_features // by
            )
            return nn.Linear(inputs, 10 if module.out_features == 10 else module.out_features // by)
        case nn.BatchNorm2d() | nn.BatchNorm1d():
            return type(module)(module.num_features // by)
        case nn.GroupNorm():
            return nn.GroupNorm(module.num_groups, module.num_channels // by)
        case _:
            return None


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Give every number of the state a random value, variances a positive one."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) / 3)
            if name.endswith("running_var"):
                tensor.abs_().add_(0.5)


class Residual(nn.Module):
    """A linear layer whose inputs and outputs are one sum: both axes of its weight move together."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(3, width), nn.Linear(width, width)
        self.last = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        out: Tensor = self.last(x + torch.tanh(self.middle(x)))
        return out


class Depthwise(nn.Module):
    """Convolutions of one channel each, with a multiplier, and one of two groups; concatenation and a cut."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 6, 3)
        self.depthwise = nn.Conv2d(6, 12, 3, groups=6)
        self.grouped = nn.Conv2d(12, 8, 1, groups=2)
        self.last = nn.Linear(14 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(x))
        deep = torch.relu(self.depthwise(x))
        both = torch.cat([torch.relu(self.grouped(deep)), x[:, :, 1:-1, 1:-1]], 1)
        out: Tensor = self.last(both.flatten(1))
        return out


class Attending(nn.Module):
    """Words, an attention block written out with two heads, LayerNorm and a perceptron."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 12), nn.Linear(12, width)
        self.last = nn.Linear(width, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        b, t, d = x.shape
        q, k, v = (part.view(b, t, 2, d // 2).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = self.norm(x + self.out(mixed))
        x = x + self.down(nn.functional.gelu(self.up(x)))
        out: Tensor = self.last(x.mean(1))
        return out


class Unseen(nn.Module):
    """A hidden layer whose units are added up in their order, where PyTorch does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        out: Tensor = self.last(torch.from_numpy(hidden.detach().numpy().cumsum(1)))
        return out
