"""Plain convolutional networks: LeNet-5, FedAvg's, of the FedDyn family of papers, and FedBN's two."""

from collections import OrderedDict
from itertools import pairwise

from torch import nn


def lenet5(classes: int, channels: int = 3) -> nn.Module:
    """Return LeNet-5 (LeCun et al. 1998) with ReLU and max-pooling, as NIID-Bench and MOON have it for CIFAR.

    Two 5×5 convolutions of 6 and 16 channels, each with ReLU and 2×2 max-pooling; three linear layers
    120-84-C. Input (B, channels, 32, 32).
    """
    return _two_convolutions(channels, (6, 16), 400, (120, 84), classes)


def cnn_mnist(classes: int, channels: int = 1) -> nn.Module:
    """Return the CNN of McMahan et al. 2017 (FedAvg) for MNIST, of 1,663,370 parameters.

    Two 5×5 convolutions of 32 and 64 channels that keep the sides, each with ReLU and 2×2 max-pooling; two
    linear layers 512-C. Input (B, channels, 28, 28).
    """
    return _two_convolutions(channels, (32, 64), 3136, (512,), classes, padding=2)


def _two_convolutions(
    channels: int,
    convolved: tuple[int, int],
    flat: int,
    hidden: tuple[int, ...],
    classes: int,
    *,
    padding: int = 0,
) -> nn.Module:
    layers: list[tuple[str, nn.Module]] = []
    for place, (inputs, outputs) in enumerate(pairwise((channels, *convolved)), 1):
        layers += [
            (f"conv{place}", nn.Conv2d(inputs, outputs, 5, padding=padding)),
            (f"relu{place}", nn.ReLU()),
            (f"pool{place}", nn.MaxPool2d(2)),
        ]
    layers.append(("flatten", nn.Flatten()))
    for place, (inputs, outputs) in enumerate(pairwise((flat, *hidden)), 1):
        layers += [(f"fc{place}", nn.Linear(inputs, outputs)), (f"relu{place + 2}", nn.ReLU())]
    layers.append((f"fc{len(hidden) + 1}", nn.Linear(hidden[-1], classes)))
    return nn.Sequential(OrderedDict(layers))


def convnet_cifar(classes: int, channels: int = 3) -> nn.Module:
    """Return the CIFAR ConvNet of Acar et al. 2021 (FedDyn), used by FedDC, MAN and, as "LeNet", FedASAM.

    Two 5×5 convolutions of 64 channels, each with ReLU and 2×2 max-pooling; three linear layers 384-192-C.
    Input (B, channels, 32, 32). No normalisation.
    """
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 64, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(64, 64, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(1600, 384),
            relu3=nn.ReLU(),
            fc2=nn.Linear(384, 192),
            relu4=nn.ReLU(),
            fc3=nn.Linear(192, classes),
        )
    )


def convnet_tiny_gn(classes: int, channels: int = 3) -> nn.Module:
    """Return the Tiny-ImageNet ConvNet of Yashwanth et al. 2024 (MAN).

    Three 3×3 convolutions of 64 channels, each with GroupNorm of 4 groups, ReLU and 2×2 max-pooling; three
    linear layers 512-384-C. Input (B, channels, 64, 64).
    """
    layers: list[tuple[str, nn.Module]] = []
    for block in (1, 2, 3):
        layers += [
            (f"conv{block}", nn.Conv2d(channels if block == 1 else 64, 64, 3, padding=1)),
            (f"norm{block}", nn.GroupNorm(4, 64)),
            (f"relu{block}", nn.ReLU()),
            (f"pool{block}", nn.MaxPool2d(2)),
        ]
    layers += [
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(4096, 512)),
        ("relu4", nn.ReLU()),
        ("fc2", nn.Linear(512, 384)),
        ("relu5", nn.ReLU()),
        ("fc3", nn.Linear(384, classes)),
    ]
    return nn.Sequential(OrderedDict(layers))


def digit_cnn6(classes: int, channels: int = 3) -> nn.Module:
    """Return the network of Li et al. 2021 (FedBN) for digits of several domains.

    Three 5×5 convolutions 64-64-128 with BatchNorm and ReLU, the first two 2×2 max-pooled; three linear
    layers 2048-512-C, the hidden ones with BatchNorm and ReLU. Input (B, channels, 28, 28). Layers are named
    as in the published code.
    """
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 64, 5, padding=2),
            bn1=nn.BatchNorm2d(64),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(64, 64, 5, padding=2),
            bn2=nn.BatchNorm2d(64),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(64, 128, 5, padding=2),
            bn3=nn.BatchNorm2d(128),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(6272, 2048),
            bn4=nn.BatchNorm1d(2048),
            relu4=nn.ReLU(),
            fc2=nn.Linear(2048, 512),
            bn5=nn.BatchNorm1d(512),
            relu5=nn.ReLU(),
            fc3=nn.Linear(512, classes),
        )
    )


def alexnet_bn(classes: int, channels: int = 3) -> nn.Module:
    """Return AlexNet with BatchNorm in place of dropout (Li et al. 2021, FedBN), for natural images.

    Published for (B, channels, 256, 256); the adaptive average pool to 6×6 takes any side from 63 up.
    """
    convolutions = (
        nn.Conv2d(channels, 64, 11, stride=4, padding=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.Conv2d(256, 256, 3, padding=1),
    )
    layers: list[tuple[str, nn.Module]] = []
    for index, convolution in enumerate(convolutions, 1):
        layers += [
            (f"conv{index}", convolution),
            (f"bn{index}", nn.BatchNorm2d(convolution.out_channels)),
            (f"relu{index}", nn.ReLU()),
        ]
        if index in (1, 2, 5):
            layers.append((f"pool{index}", nn.MaxPool2d(3, 2)))
    layers += [
        ("average", nn.AdaptiveAvgPool2d(6)),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(9216, 4096)),
        ("bn6", nn.BatchNorm1d(4096)),
        ("relu6", nn.ReLU()),
        ("fc2", nn.Linear(4096, 4096)),
        ("bn7", nn.BatchNorm1d(4096)),
        ("relu7", nn.ReLU()),
        ("fc3", nn.Linear(4096, classes)),
    ]
    return nn.Sequential(OrderedDict(layers))
