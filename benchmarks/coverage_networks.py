"""Small networks of the coverage campaign, whose Hessian products are cheap on one core.

From this folder, with FEDSCOPE_DATA, ``python -m fedscope train --registry DIR --name NAME --clients 1
--partition iid --epochs 1 --momentum 0.9 --nesterov --optimizer-state client --weight-decay 5e-4 --threads 1
--save-clients none`` with

    groupnorm_cnn  --dataset cifar10 --augmentation none --model coverage_networks:groupnorm_cnn
                   --batch-size 128 --rounds 8 --lr 0.05 --lr-decay 0.7
    vehicles       --data coverage_networks:vehicles --test-data coverage_networks:held_out_vehicles
                   --model coverage_networks:residual_cnn --batch-size 128 --rounds 8 --lr 0.1 --lr-decay 0.6
    remembered     --data coverage_networks:remembered --test-data coverage_networks:remembered
                   --model lenet5 --batch-size 64 --rounds 17 --lr 0.02 --lr-decay 0.9

A run of the registry that was trained elsewhere is measured likewise (``--networks RUN``), one of the gallery
after ``fedscope runs pull RUN git:``.

The population of ``remembered`` are the samples that it was trained on: few of them carry what curvature is
left, and its largest eigenvalues lie close together.

Input (B, 3, 32, 32), output logits (B, 10), of ``residual_cnn`` (B, 2).
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from fedscope.data.loading.datasets import Split as Pictures
from fedscope.data.sets.dataset_catalogue import load

VEHICLES = (0, 1, 8, 9)  # aeroplanes, cars, ships, lorries
Split = tuple[Tensor, Tensor]


def vehicles() -> Split:
    """Return CIFAR-10's training split, of FEDSCOPE_DATA, with two classes: animals (0) and vehicles (1)."""
    return _vehicles(load("cifar10").train)


def held_out_vehicles() -> Split:
    """Return the test split likewise."""
    return _vehicles(load("cifar10").test)


def remembered() -> Split:
    """Return the first 10,000 training images of CIFAR-10."""
    images, labels = _scaled(load("cifar10").train)
    return images[:10_000], labels[:10_000]


def _vehicles(split: Pictures) -> Split:
    images, labels = _scaled(split)
    return images, torch.isin(labels, torch.tensor(VEHICLES)).long()


def _scaled(split: Pictures) -> Split:
    assert isinstance(split.images, Tensor)
    return (split.images.float() / 255 - 0.47) / 0.25, split.labels


class GroupNorm(nn.GroupNorm):
    """GroupNorm in plain operations."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, C, …) normalised within each sample's groups of channels."""
        groups = x.reshape(len(x), self.num_groups, -1)
        centred = groups - groups.mean(2, keepdim=True)
        scaled = centred * (centred.square().mean(2, keepdim=True) + self.eps).rsqrt()
        shape = (1, -1, *[1] * (x.ndim - 2))
        return scaled.view_as(x) * self.weight.view(shape) + self.bias.view(shape)


def groupnorm_cnn() -> nn.Module:
    """Return a network of 0.4 MMACs with GroupNorm.

    3×3 convolutions with stride 2 of 12, 24 and 48 channels, each with GroupNorm of 4 groups and ReLU; a mean
    over the picture and a linear layer.
    """
    layers: list[nn.Module] = []
    for narrow, wide in pairwise((3, 12, 24, 48)):
        layers += [nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False), GroupNorm(4, wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))


class Block(nn.Module):
    """Two 3×3 convolutions with BatchNorm beside a shortcut, as in ResNets."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide),
        )  # fmt: skip
        self.shortcut = (
            nn.Identity() if stride == 1
            else nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for x (B, narrow, …)."""
        out: Tensor = self.shortcut(x) + self.body(x)
        return out.relu()


def residual_cnn() -> nn.Module:
    """Return a ResNet of 0.6 MMACs with BatchNorm: a 3×3 convolution, 2×2 pooling, blocks of 16 and 32."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        Block(16, 16, 1), Block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
