"""What the contestants share: plain PyTorch that knows neither fedscope nor its peers.

A contestant is a script that reads a work file (written once per group by ``training.py``), trains the rounds
it asks for, and prints one JSON line. Everything before the end of the first round is warm-up, not counted.
"""

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Work:
    """The task of a group: the same clients, data, initial weights and settings for every contestant."""

    settings: Mapping[str, Any]  # the fields of fedscope's Settings
    inputs: Tensor  # (clients, n, C, H, W) float32, normalised: every client holds n samples
    labels: Tensor  # (clients, n) int64
    test_inputs: Tensor  # (m, C, H, W) float32
    test_labels: Tensor  # (m,) int64
    classes: int
    initial: dict[str, Tensor]  # the state dict every contestant starts from

    @property
    def cohort(self) -> int:
        """Clients per round."""
        count: float = self.settings["clients"] * self.settings["participation"]
        return math.floor(count + 1e-9)


def arguments(**extra: dict[str, Any]) -> argparse.Namespace:
    """Parse a contestant's command line: the work file, and the options named in ``extra``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    for name, how in extra.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    return parser.parse_args()


def read_work(path: Path | str) -> Work:
    """Load a work file and normalise its images; no contestant is timed on this."""
    raw = torch.load(path, weights_only=True)
    mean, std = (torch.tensor(raw[name]).view(-1, 1, 1) for name in ("mean", "std"))

    def normalised(images: Tensor) -> Tensor:
        return images.float().div_(255).sub_(mean).div_(std)

    return Work(
        raw["settings"],
        normalised(raw["train_images"]),
        raw["train_labels"],
        normalised(raw["test_images"]),
        raw["test_labels"],
        raw["classes"],
        raw["initial"],
    )


def network(work: Work) -> nn.Module:
    """Return the group's network with fedscope's initial weights: same tensors, in the same order."""
    model = NETWORKS[work.settings["model"]](work.classes, work.inputs.shape[2])
    model.load_state_dict(dict(zip(model.state_dict(), work.initial.values(), strict=True)))
    return model


def convnet_cifar(classes: int, channels: int) -> nn.Module:
    """Return the CIFAR ConvNet of Acar et al. 2021."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, classes)),
    )


def mlp_digits(classes: int, channels: int) -> nn.Module:
    """Return the 64-32-C perceptron for 8×8 images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 32), nn.ReLU(), nn.Linear(32, classes))


NETWORKS = {"convnet_cifar": convnet_cifar, "mlp_digits": mlp_digits}


def sgd(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.SGD:
    """Return the local optimizer; ``foreach`` is a few per cent faster on the CPU for deep networks."""
    names = ("lr", "momentum", "nesterov", "weight_decay")
    return torch.optim.SGD(model.parameters(), **{name: settings[name] for name in names}, foreach=True)


def train_locally(model: nn.Module, inputs: Tensor, labels: Tensor, settings: Mapping[str, Any]) -> int:
    """Train on one client's tensors, each epoch in a new order; return the number of steps."""
    optimizer, steps = sgd(model, settings), 0
    model.train()
    for _ in range(settings["epochs"]):
        for batch in torch.randperm(len(labels)).split(settings["batch_size"]):
            optimizer.zero_grad()
            cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            steps += 1
    return steps


@torch.no_grad()
def accuracy(model: nn.Module, work: Work, batch_size: int = 1000) -> float:
    """Return the accuracy on the test split, which every federated contestant computes after every round."""
    model.eval()
    batches = zip(work.test_inputs.split(batch_size), work.test_labels.split(batch_size), strict=True)
    correct = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in batches)
    return correct / len(work.test_labels)


@dataclass
class Rounds:
    """When each round ended and how much was trained in it; the first round is the warm-up."""

    ends: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def end(self, steps: int, samples: int) -> None:
        """Note that a round is over, in which this many gradient steps saw this many samples."""
        self.ends.append(time.perf_counter())
        self.steps.append(steps)
        self.samples.append(samples)

    def report(self, **more: object) -> None:
        """Print the JSON line: seconds, steps and samples of all rounds but the first."""
        line = {
            "rounds": len(self.ends) - 1,
            "seconds": self.ends[-1] - self.ends[0],
            "steps": sum(self.steps[1:]),
            "samples": sum(self.samples[1:]),
            **more,
        }
        print(json.dumps(line), flush=True)
