"""The networks by name, what each is for, and how their weights are drawn."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, get_args

import torch
from torch import nn

from fedscope.choices import Shortcut
from fedscope.errors import UserError, suggestion
from fedscope.lora import LoRA
from fedscope.models.convnets import alexnet_bn, cnn_mnist, convnet_cifar, convnet_tiny_gn, digit_cnn6, lenet5
from fedscope.models.resnet import (
    ResNet,
    resnet8,
    resnet18,
    resnet18_gn,
    resnet20,
    resnet56_bottleneck,
    resnet_digits,
)
from fedscope.models.stochastic_depth import Schedule, set_depth
from fedscope.models.transformer import VisionTransformer, vit_cifar
from fedscope.models.users_network import network
from fedscope.own import MODELS, is_own, registered


def mlp_digits(classes: int, channels: int = 1) -> nn.Module:
    """Return a perceptron with one hidden layer of 32; input (B, channels, 8, 8)."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * channels, 32),
            relu=nn.ReLU(),
            fc2=nn.Linear(32, classes),
        )
    )


@dataclass(frozen=True)
class CatalogueNetwork:
    """A network of the catalogue. Its published use is ``channels``×``side``×``side`` images of ``data``."""

    make: Callable[..., nn.Module]  # of classes, channels; where it may, also of head, shortcut
    source: str
    data: tuple[str, ...]  # the data sets that the papers train it on
    classes: int
    channels: int
    side: int
    least: int | None = None  # takes images of any side from here up; None: of ``side`` alone
    residual: bool = False  # can have a head, be slimmed, and drop blocks
    shortcuts: tuple[str, ...] = ()  # the options to choose from, the default first

    def takes(self, side: int) -> bool:
        return side == self.side if self.least is None else side >= self.least

    @property
    def sides(self) -> str:
        if self.least is None:
            return f"{self.side}-pixel images"
        return f"images of {self.least} pixels or more" if self.least > 1 else "images of any size"


_HE = "He et al. 2016 (CVPR)"
_FEDBN = "Li et al. 2021 (ICLR, FedBN)"

NETWORKS = {
    "resnet_digits": CatalogueNetwork(
        resnet_digits, "fedscope", ("digits",), 10, 1, 8, least=1, residual=True
    ),
    "mlp_digits": CatalogueNetwork(mlp_digits, "fedscope", ("digits", "synthetic"), 10, 1, 8),
    "convnet_cifar": CatalogueNetwork(
        convnet_cifar, "Acar et al. 2021 (ICLR, FedDyn)", ("cifar10", "cifar100"), 100, 3, 32
    ),
    "convnet_tiny_gn": CatalogueNetwork(
        convnet_tiny_gn, "Yashwanth et al. 2024 (WACV, MAN)", ("tinyimagenet",), 200, 3, 64
    ),
    "resnet8": CatalogueNetwork(
        resnet8, f"{_HE}, section 4.2", (), 100, 3, 32,
        least=1, residual=True, shortcuts=get_args(Shortcut),
    ),
    "resnet20": CatalogueNetwork(
        resnet20, f"{_HE}, section 4.2", ("imbalanced_cifar10", "cifar10"), 10, 3, 32,
        least=1, residual=True, shortcuts=get_args(Shortcut),
    ),
    "resnet56_bottleneck": CatalogueNetwork(
        resnet56_bottleneck, "He et al. 2020 (FedML); Mendieta et al. 2022 (CVPR, FedAlign)",
        ("cifar100", "cifar10"), 100, 3, 32, least=1, residual=True,
    ),
    "resnet18": CatalogueNetwork(
        resnet18, f"{_HE}, Table 1", ("imagenet200",), 200, 3, 224, least=1, residual=True
    ),
    "resnet18_gn": CatalogueNetwork(
        resnet18_gn, "Hsieh et al. 2020 (ICML); Reddi et al. 2021 (ICLR)", ("cifar10", "cifar100"),
        100, 3, 32, least=1, residual=True,
    ),
    "lenet5": CatalogueNetwork(
        lenet5, "LeCun et al. 1998; NIID-Bench (Li et al. 2022), MOON", ("cifar10",), 10, 3, 32
    ),
    "cnn_mnist": CatalogueNetwork(cnn_mnist, "McMahan et al. 2017 (AISTATS, FedAvg)", (), 10, 1, 28),
    "vit_cifar": CatalogueNetwork(
        vit_cifar, "Dosovitskiy et al. 2021 (ICLR); patches of 4, width 192, depth 6",
        ("cifar10", "cifar100"), 100, 3, 32,
    ),
    "digit_cnn6": CatalogueNetwork(digit_cnn6, f"{_FEDBN}, digits", ("digits5",), 10, 3, 28),
    "alexnet_bn": CatalogueNetwork(
        alexnet_bn, f"{_FEDBN}, Office-Caltech and DomainNet", ("domainnet", "office_caltech"), 10, 3, 256,
        least=63,
    ),
}  # fmt: skip


def find(name: str) -> CatalogueNetwork:
    if name not in NETWORKS:
        known = (*NETWORKS, *registered(MODELS))
        hint = suggestion(name, known) or f"; choose one of {', '.join(known)}, or MODULE:FACTORY"
        raise UserError(f"unknown model {name!r}{hint}")
    return NETWORKS[name]


def build(
    name: str,
    classes: int | None,
    channels: int | None,
    generator: torch.Generator,
    *,
    head: bool = False,
    shortcut: Shortcut | None = None,
    keep: float = 1.0,
    schedule: Schedule = "code",
    lora: LoRA | None = None,
) -> nn.Module:
    """Return the network ``name`` with weights drawn from ``generator`` (and from nothing else).

    A name MODULE:FACTORY is a network of the user's own, which has its own classes and channels; ``hf:NAME``
    is a pretrained one, with adapters where ``lora`` says which.

    ``head`` adds MOON's projection, drawn last: the layers before it are those of the plain network.
    ``shortcut`` is that of a residual network that was published with several; None: its default.
    ``keep`` is the keep probability of the last block, the others' follow the ``schedule``; neither is drawn.

    Raises:
        UserError: the name is unknown; the network has no residual blocks and is to have a ``head`` or to
            drop some; it has one kind of ``shortcut``; ``keep`` is not in (0, 1].
    """
    if is_own(name):
        return network(name, generator, lora)
    model = outline(name, classes, channels, head=head, shortcut=shortcut)
    # Not `to_empty`: PyTorch allocates like a tensor without storage in Python, and imports SymPy to do so.
    empty = {key: torch.empty(t.shape, dtype=t.dtype) for key, t in model.state_dict().items()}
    model.load_state_dict(empty, assign=True)
    for _, module in sorted(model.named_modules(), key=lambda named: named[0].startswith("head.")):
        _initialise(module, generator, he=isinstance(model, ResNet))
    if keep != 1:
        set_depth(model, keep, schedule)
    return model


def outline(
    name: str,
    classes: int | None,
    channels: int | None,
    *,
    head: bool = False,
    shortcut: Shortcut | None = None,
) -> nn.Module:
    """Return the network ``name`` without weights: on PyTorch's meta device, where it has only shapes."""
    network, chosen = find(name), dict[str, Any]()
    if head:
        if not network.residual:
            able = (other for other, record in NETWORKS.items() if record.residual)
            raise UserError(f"{name} has no projection head; choose one of {', '.join(able)}")
        chosen["head"] = True
    if shortcut is not None:
        if shortcut not in network.shortcuts:
            able = (other for other, record in NETWORKS.items() if record.shortcuts)
            raise UserError(
                f"{name} has no shortcut {shortcut!r} to choose; {' and '.join(able)} have A and B"
            )
        chosen["shortcut"] = shortcut
    with torch.device("meta"):
        return network.make(classes, channels, **chosen)


def _initialise(module: nn.Module, generator: torch.Generator, *, he: bool) -> None:
    """Fill one layer's tensors: He fan-out normal for convolutions where ``he``, else PyTorch's defaults."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        if he and isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        else:
            nn.init.kaiming_uniform_(module.weight, a=sqrt(5), generator=generator)
        if module.bias is not None:
            bound = 1 / sqrt(module.weight[0].numel())
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
        module.reset_parameters()
    elif isinstance(module, VisionTransformer):
        for embedding in (module.token, module.position):
            nn.init.trunc_normal_(embedding, std=0.02, generator=generator)
