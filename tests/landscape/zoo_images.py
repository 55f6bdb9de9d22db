"""Convolutional networks for the zoo, each as its users write it."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 4


class LeNet(nn.Module):
    """The network of PyTorch's own tutorial, for 3 × 32 × 32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 30)
        self.fc2 = nn.Linear(30, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        logits: Tensor = self.fc2(F.relu(self.fc1(x)))
        return logits


class VGG(nn.Module):
    """BatchNorm, ReLU in place, adaptive pooling and a classifier with dropout, as torchvision's."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in (4, "M", 8, 8, "M"):
            if isinstance(width, str):
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
                continue
            layers += [
                nn.Conv2d(channels, width, kernel_size=3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(8 * 4, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        logits: Tensor = self.classifier(torch.flatten(x, 1))
        return logits


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut that is a convolution where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        result: Tensor = self.relu(out)
        return result


class CifarResNet(nn.Module):
    """PyHessian's own: pooling by a fixed window, ``view`` before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(4, 4), BasicBlock(4, 4))
        self.layer2 = nn.Sequential(BasicBlock(4, 8, stride=2))
        self.avgpool = nn.AvgPool2d(4)
        self.fc = nn.Linear(8 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        x = x.view(x.size(0), -1)
        logits: Tensor = self.fc(x)
        return logits


class DenseNet(nn.Module):
    """One dense block, BatchNorm before each convolution, and a transition."""

    class Layer(nn.Sequential):
        """What a dense layer adds to the features before it."""

        def __init__(self, inputs: int, growth: int) -> None:
            super().__init__(
                OrderedDict[str, nn.Module](
                    norm1=nn.BatchNorm2d(inputs),
                    relu1=nn.ReLU(inplace=True),
                    conv1=nn.Conv2d(inputs, 4 * growth, 1, bias=False),
                    norm2=nn.BatchNorm2d(4 * growth),
                    relu2=nn.ReLU(inplace=True),
                    conv2=nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
                )
            )

        def forward(self, x: Tensor) -> Tensor:
            added = x
            for layer in self:
                added = layer(added)
            return torch.cat([x, added], 1)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.block = nn.Sequential(self.Layer(4, 3), self.Layer(7, 3))
        self.transition = nn.Sequential(nn.BatchNorm2d(10), nn.ReLU(inplace=True), nn.Conv2d(10, 5, 1))
        self.classifier = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features = self.transition(self.block(self.stem(x)))
        out = F.adaptive_avg_pool2d(F.relu(features, inplace=True), (1, 1)).view(features.size(0), -1)
        logits: Tensor = self.classifier(out)
        return logits


class MobileNet(nn.Module):
    """Two inverted residuals: expansion, depthwise convolution, ReLU6, linear projection."""

    class Block(nn.Module):
        """An inverted residual."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            hidden = 2 * inputs
            self.use_shortcut = inputs == outputs
            self.conv = nn.Sequential(
                nn.Conv2d(inputs, hidden, 1, bias=False),
                nn.BatchNorm2d(hidden),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
                nn.BatchNorm2d(hidden),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.conv(x)
            return x + out if self.use_shortcut else out

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(self.Block(4, 4), self.Block(4, 6))
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.blocks(self.stem(x)).mean([2, 3]))
        return logits


class SqueezeExcite(nn.Module):
    """Channels weighted by what the whole image says of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.squeeze = nn.AdaptiveAvgPool2d(1)
        self.excite = nn.Sequential(nn.Linear(8, 4), nn.SiLU(), nn.Linear(4, 8), nn.Sigmoid())
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.bn(self.conv(x)))
        b, c, _, _ = x.shape
        weights = self.excite(self.squeeze(x).view(b, c)).view(b, c, 1, 1)
        logits: Tensor = self.fc((x * weights).mean((2, 3)))
        return logits


class Inception(nn.Module):
    """Four branches, concatenated; a second head for training in the outputs, as GoogLeNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 3, 1)
        self.three = nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1)
        )
        self.five = nn.Conv2d(3, 3, 5, padding=2, padding_mode="reflect")
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(3, 3, 1))
        self.head, self.auxiliary = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        branches = [F.relu(branch(x)) for branch in (self.one, self.three, self.five, self.pool)]
        features = torch.cat(branches, dim=1).mean((2, 3))
        return self.head(features), self.auxiliary(features)


class UNet(nn.Module):
    """Down and up again with a connection across; every pixel has its label."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        )
        self.down2 = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Sequential(
            nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, CLASSES, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        scores: Tensor = self.out(torch.cat([first, self.up(second)], dim=1))
        return scores


class SuperResolution(nn.Module):
    """An image of twice the size by a pixel shuffle, as ESPCN; PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.act = nn.Conv2d(3, 8, 5, padding=2), nn.PReLU()
        self.conv2, self.shuffle = nn.Conv2d(8, 3 * 4, 3, padding=1), nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        image: Tensor = self.shuffle(self.conv2(self.act(self.conv1(x))))
        return image


class GroupNormNet(nn.Module):
    """Group, instance and layer normalisation in place of BatchNorm's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(3, 6)
        self.conv2, self.norm2 = (
            nn.Conv2d(6, 6, 3),
            nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
        )
        self.norm3, self.fc = nn.LayerNorm(6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm1(self.conv1(x)))
        x = F.gelu(self.norm2(self.conv2(x)))
        logits: Tensor = self.fc(self.norm3(x.mean((2, 3))))
        return logits


class FunctionalNorm(nn.Module):
    """``F.batch_norm`` with statistics and weights that the network holds itself."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(0.3 * torch.randn(5, 3, 3, 3))
        self.gamma, self.beta = nn.Parameter(torch.rand(5) + 0.5), nn.Parameter(torch.zeros(5))
        self.register_buffer("running_mean", 0.1 * torch.randn(5))
        self.register_buffer("running_var", torch.rand(5) + 0.5)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.kernel, padding=1)
        x = F.batch_norm(x, self.running_mean, self.running_var, self.gamma, self.beta, self.training)
        logits: Tensor = self.fc(F.relu(x).mean((2, 3)))
        return logits
