"""Ten measurements for ``plan.py``: networks, samples and options, from small to 12 million parameters."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedscope.models import catalogue

CLASSES = 10


@dataclass(frozen=True)
class Job:
    """One measurement: factories of this file, the command's options, and how long the network is trained."""

    model: str
    data: str
    options: tuple[str, ...] = ()
    steps: int = 60


JOBS = {
    "perceptron": Job("perceptron", "vectors"),
    "perceptron-untrained": Job("perceptron", "vectors", ("--probes", "20"), steps=0),
    "perceptron-5M": Job("wide", "vectors"),
    "perceptron-12M-memory": Job("wider", "vectors", ("--memory", "3G")),
    "convnet-top5": Job("convnet", "images", ("--top-k", "5")),
    "convnet-layers": Job("convnet", "images", ("--layers", "--samples", "512")),
    "resnet-batchnorm": Job("resnet", "few_images"),
    "resnet-both-ends": Job("resnet", "few_images", ("--both-ends", "--tol", "1e-2")),
    "transformer-gauss-newton": Job("transformer", "sequences", ("--operator", "ggn")),
    "transformer-density": Job("transformer", "sequences", ("--density", "--probes", "8")),
}


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _perceptron(first: int, second: int) -> nn.Module:
    layers = nn.Linear(64, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, CLASSES)
    return nn.Sequential(*layers)


def perceptron() -> nn.Module:
    """A perceptron of 50,826 weights."""
    return _perceptron(256, 128)


def wide() -> nn.Module:
    """A perceptron of 4.3 million weights."""
    return _perceptron(2048, 2048)


def wider() -> nn.Module:
    """A perceptron of 12 million weights."""
    return _perceptron(3400, 3400)


def convnet() -> nn.Module:
    """A convolutional network of 151,000 weights."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, CLASSES),
    )  # fmt: skip


def resnet() -> nn.Module:
    """ResNet-20 with BatchNorm, 0.27 million weights."""
    return catalogue.build("resnet20", CLASSES, 3, _seeded())


def transformer() -> nn.Module:
    """Three encoder blocks of width 64."""
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), Last(64))


class Last(nn.Module):
    """A linear layer on the mean over positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, positions, width) to logits."""
        found: Tensor = self.out(x.mean(1))
        return found


def _labelled(shape: tuple[int, ...], samples: int) -> list[tuple[Tensor, Tensor]]:
    """Return Gaussian samples around a centre for each class, in batches of 128."""
    generator = _seeded()
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    centres = torch.randn(CLASSES, *shape, generator=generator)
    inputs = 0.5 * centres[labels] + torch.randn(samples, *shape, generator=generator)
    return list(zip(inputs.split(128), labels.split(128), strict=True))


def vectors() -> list[tuple[Tensor, Tensor]]:
    """1,024 vectors."""
    return _labelled((64,), 1024)


def images() -> list[tuple[Tensor, Tensor]]:
    """1,024 small images."""
    return _labelled((3, 16, 16), 1024)


def few_images() -> list[tuple[Tensor, Tensor]]:
    """256 images."""
    return _labelled((3, 32, 32), 256)


def sequences() -> list[tuple[Tensor, Tensor]]:
    """512 sequences of 24 vectors."""
    return _labelled((24, 64), 512)


def trained(job: Job) -> dict[str, Tensor]:
    """Return the weights of a job's network after its steps of SGD."""
    torch.manual_seed(0)
    model, batches = globals()[job.model](), globals()[job.data]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(job.steps):
        inputs, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    state: dict[str, Tensor] = model.state_dict()
    return state
