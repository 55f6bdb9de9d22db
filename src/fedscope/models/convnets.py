"""Plain convolutional networks of the FedDyn family of papers."""

from collections import OrderedDict

from torch import nn


def convnet_cifar(classes: int, channels: int = 3) -> nn.Module:
    """Return the CIFAR ConvNet of Acar et al. 2021 (FedDyn), used by FedDC, FedSAM and MAN.

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
