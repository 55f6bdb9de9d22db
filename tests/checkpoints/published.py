"""Networks with the names that published code gives their tensors, written anew for the tests."""

from torch import Tensor, nn
from torch.nn.functional import batch_norm, max_pool2d, relu


class SlimmableNorm(nn.BatchNorm2d):
    """FedAlign's: affine parameters of its own, running statistics in a nested layer without any."""

    def __init__(self, channels: int, listed: bool = False) -> None:
        super().__init__(channels, affine=True, track_running_stats=False)
        nested = nn.BatchNorm2d(channels, affine=False)
        self.bn: nn.Module = nn.ModuleList([nested]) if listed else nested

    def forward(self, x: Tensor) -> Tensor:
        nested = self.bn[0] if isinstance(self.bn, nn.ModuleList) else self.bn
        return batch_norm(x, nested.running_mean, nested.running_var, self.weight, self.bias, eps=self.eps)  # type: ignore[arg-type]


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int, norm: type[nn.BatchNorm2d]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = norm(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = norm(4 * planes)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != 4 * planes:
            projected = nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False)
            self.downsample = nn.Sequential(projected, norm(4 * planes))

    def forward(self, x: Tensor) -> Tensor:
        out = relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(relu(self.bn2(self.conv2(out)))))
        return relu(out + (x if self.downsample is None else self.downsample(x)))


class FedMLResNet56(nn.Module):
    """FedML's and FedAlign's ResNet-56, with the projection of FedAlign's MOON if asked for."""

    def __init__(
        self, classes: int, channels: int = 3, slimmable: bool = False, projection: bool = False
    ) -> None:
        super().__init__()
        norm = SlimmableNorm if slimmable else nn.BatchNorm2d
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = norm(16)
        self.layer1 = nn.Sequential(*(Bottleneck(64 if i else 16, 16, 1, norm) for i in range(6)))
        self.layer2 = nn.Sequential(
            *(Bottleneck(128 if i else 64, 32, 1 if i else 2, norm) for i in range(6))
        )
        self.layer3 = nn.Sequential(
            *(Bottleneck(256 if i else 128, 64, 1 if i else 2, norm) for i in range(6))
        )
        self.p1: nn.Linear | None = nn.Linear(256, 256) if projection else None
        self.p2: nn.Linear | None = nn.Linear(256, 256) if projection else None
        self.fc = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x)))))).mean((2, 3))
        if self.p1 is not None and self.p2 is not None:
            x = self.p2(relu(self.p1(x)))
        logits: Tensor = self.fc(x)
        return logits


class ClientModel(nn.Module):
    """The CIFAR network of FedDyn's and FL-Simulator's code."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.fc1 = nn.Linear(64 * 5 * 5, 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2).flatten(1)
        logits: Tensor = self.fc3(relu(self.fc2(relu(self.fc1(x)))))
        return logits
