"""Small CIFAR-10 networks of the coverage campaign, whose Hessian products are cheap on one core.

From this folder, ``python -m fedscope train --registry DIR --name NAME --dataset cifar10 --clients 1
--partition iid --epochs 1 --batch-size 128 --momentum 0.9 --nesterov --optimizer-state client
--weight-decay 5e-4 --precision bf16 --threads 1 --save-clients none`` with

    batchnorm_cnn  --model coverage_networks:batchnorm_cnn --rounds 20 --lr 0.1 --lr-decay 0.82
                   --augmentation man
    groupnorm_cnn  --model coverage_networks:groupnorm_cnn --rounds 8 --lr 0.05 --lr-decay 0.7
    convnet_cifar  --model convnet_cifar --rounds 6 --lr 0.03 --lr-decay 0.65

Input (B, 3, 32, 32), output logits (B, 10).
"""

from itertools import pairwise

from torch import Tensor, nn


class GroupNorm(nn.GroupNorm):
    """GroupNorm in plain operations."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, C, …) normalised within each sample's groups of channels."""
        groups = x.reshape(len(x), self.num_groups, -1)
        centred = groups - groups.mean(2, keepdim=True)
        scaled = centred * (centred.square().mean(2, keepdim=True) + self.eps).rsqrt()
        shape = (1, -1, *[1] * (x.ndim - 2))
        return scaled.view_as(x) * self.weight.view(shape) + self.bias.view(shape)


def batchnorm_cnn() -> nn.Module:
    """Return a network of 15.2 MMACs with BatchNorm.

    3×3 convolutions of 32, 64, 128 and 256 channels, each with BatchNorm, ReLU and 2×2 max-pooling, the last
    with a mean over the picture; a linear layer.
    """
    layers: list[nn.Module] = []
    for narrow, wide in pairwise((3, 32, 64, 128, 256)):
        layers += [nn.Conv2d(narrow, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def groupnorm_cnn() -> nn.Module:
    """Return a network of 1.3 MMACs with GroupNorm.

    3×3 convolutions with stride 2 of 16, 48 and 96 channels, each with GroupNorm of 4 groups and ReLU; a mean
    over the picture and a linear layer.
    """
    layers: list[nn.Module] = []
    for narrow, wide in pairwise((3, 16, 48, 96)):
        layers += [nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False), GroupNorm(4, wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))
