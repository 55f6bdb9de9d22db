"""A network small enough that everything but its arithmetic shows: for overheads and many clients."""

from collections import OrderedDict

from torch import nn


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
