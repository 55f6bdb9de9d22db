"""The shared cases: small float64 nets, with a dense Hessian from ``torch.func`` on all samples at once."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian

from fedscope.landscape import Batches, Hessian, LambdaOperator


@dataclass(frozen=True)
class Case:
    """A model with data, and its oracle."""

    name: str
    model: nn.Module
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    inputs: Tensor
    targets: Tensor
    batch_size: int

    @property
    def batches(self) -> Batches:
        return Batches(self.inputs, self.targets, self.batch_size)

    @property
    def operator(self) -> Hessian:
        return Hessian(self.model, self.loss_fn, self.batches)

    @property
    def names(self) -> list[str]:
        return [name for name, p in self.model.named_parameters() if p.requires_grad]

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters() if p.requires_grad])

    def loss_at(self, flat: Tensor) -> Tensor:
        """The eval-mode mean loss over all samples in one batch, at flat trainable parameters."""
        parameters, begin = {}, 0
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                parameters[name] = flat[begin : begin + p.numel()].view(p.shape)
                begin += p.numel()
        training = {module: module.training for module in self.model.modules()}
        self.model.eval()
        loss = self.loss_fn(functional_call(self.model, parameters, (self.inputs,)), self.targets)
        for module, mode in training.items():
            module.training = mode
        return loss

    def dense(self) -> Tensor:
        """The (n, n) Hessian."""
        with warnings.catch_warnings():
            # PyTorch's own forward-mode rules still go through its deprecated jit.
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
            matrix: Tensor = hessian(self.loss_at)(self.weights)
        return matrix


class PartlyUsed(nn.Module):
    """A net with one frozen tensor, one that never enters the loss, and one that enters it linearly."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.randn(3))
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 2)
        self.shift = nn.Parameter(torch.zeros(2))
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(torch.tanh(self.first(x))) + self.shift
        return output


def mlp() -> Case:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    return Case("mlp", model, nn.functional.cross_entropy, *_classes(23, (4,), 3), batch_size=8)


def convnet() -> Case:
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Softplus(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(18, 3)
    ).double()
    inputs, targets = _classes(26, (1, 5, 5), 3)
    model(2 * inputs + 1)  # running statistics that are neither the initial ones nor the data's
    return Case("convnet", model, nn.functional.cross_entropy, inputs, targets, batch_size=8)


def partly_used() -> Case:
    torch.manual_seed(3)
    model = PartlyUsed().double()
    inputs = torch.randn(10, 4, dtype=torch.float64)
    targets = torch.randn(10, 2, dtype=torch.float64)
    return Case("partly_used", model, nn.functional.mse_loss, inputs, targets, batch_size=4)


def matrix_operator(matrix: Tensor) -> LambdaOperator:
    return LambdaOperator(lambda v: matrix @ v, len(matrix), matrix.dtype)


def symmetric(spectrum: Tensor, seed: int = 12345) -> Tensor:
    """A dense symmetric matrix with this spectrum and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(spectrum)
    basis, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    matrix: Tensor = (basis * spectrum.double()) @ basis.T
    return matrix


def _classes(samples: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    return torch.randn(samples, *shape, dtype=torch.float64), torch.randint(classes, (samples,))
