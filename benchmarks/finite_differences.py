"""Whether the bound on the error of a product by finite differences holds, and λ_max's certificate with it.

    python benchmarks/finite_differences.py --json benchmarks/finite_differences.json

Networks in float32, one of them through a fused attention kernel without a second derivative, and one more
with activations in bfloat16, each after some steps of training. The exact product is of the same weights in
float64, by double backward, through plain attention where the kernel has none. The directions are random,
those of a power iteration (of large curvature), single layers, single coordinates, and the gradient.
"""

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import machine
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.landscape import Batches, Hessian, top_eigenpairs, trace
from fedscope.models.resnet import resnet8
from fedscope.models.transformer import VisionTransformer

SAMPLES, BATCH, CLASSES = 32, 16, 5


class Attention(nn.Module):
    """A causal language model of one block, with the attention kernel and the precision as attributes."""

    def __init__(self, words: int = 40, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.1 * torch.randn(8, width))
        self.one, self.two, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.kernel, self.rounded = SDPBackend.FLASH_ATTENTION, False

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, words, T)."""
        x = self.words(tokens) + self.places
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.rounded), sdpa_kernel(self.kernel):
            parts = self.inner(self.one(x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outer(mixed.transpose(1, 2).flatten(2))
            x = x + self.down(F.gelu(self.up(self.two(x))))
            logits: Tensor = self.head(self.last(x))
        return logits.to(x.dtype).transpose(1, 2)


@dataclass(frozen=True)
class Subject:
    """A network with its samples."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    targets: Callable[[], Tensor]
    plain: Callable[[nn.Module], None] = lambda model: None  # for the exact products
    rounded: Callable[[nn.Module], None] = lambda model: None  # for the finite differences


def _labels() -> Tensor:
    return torch.randint(CLASSES, (SAMPLES,))


def _tokens() -> Tensor:
    return torch.randint(40, (SAMPLES, 8))


def _images() -> Tensor:
    return torch.randn(SAMPLES, 3, 16, 16)


def _vision() -> nn.Module:
    model = VisionTransformer(CLASSES, 3, side=16, patch=4, width=32, depth=2, heads=2)
    for learned in (model.token, model.position):
        nn.init.trunc_normal_(learned, std=0.02)
    return model


def _eager(model: nn.Module) -> None:
    model.kernel = SDPBackend.MATH  # type: ignore[assignment]


def _bfloat16(model: nn.Module) -> None:
    model.rounded = True  # type: ignore[assignment]


SUBJECTS = {
    "tanh perceptron": Subject(
        lambda: nn.Sequential(
            nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, CLASSES)
        ),
        lambda: torch.randn(SAMPLES, 20), _labels,
    ),
    "ReLU convolutions with max-pooling": Subject(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES),
        ),
        _images, _labels,
    ),
    "ResNet-8 with BatchNorm": Subject(lambda: resnet8(CLASSES), _images, _labels),
    "vision transformer": Subject(_vision, _images, _labels),
    "language model, fused attention": Subject(Attention, _tokens, _tokens, plain=_eager),
    "the same in bfloat16": Subject(Attention, _tokens, _tokens, plain=_eager, rounded=_bfloat16),
}  # fmt: skip


def trained(subject: Subject) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network after 20 steps of Adam, with its samples."""
    model, x, y = subject.make(), subject.inputs(), subject.targets()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, x, y


def directions(exact: Hessian, count: int) -> Iterator[Tensor]:
    """Yield vectors of five kinds in turn."""
    generator, n = torch.Generator().manual_seed(1), exact.shape[0]
    ends = torch.tensor(exact.loss.numels).cumsum(0).tolist()
    power = gradient = exact.gradient()
    for i in range(count):
        v = torch.randn(n, generator=generator, dtype=torch.float64)
        if i % 5 == 1:
            power = exact @ (power / power.norm())
            v = power + (0.1 * float(power.norm()) / n**0.5) * v
        elif i % 5 == 2:
            layer = i // 5 % len(ends)
            inside = slice(ends[layer] - exact.loss.numels[layer], ends[layer])
            v[: inside.start], v[inside.stop :] = 0, 0
        elif i % 5 == 3:
            v = torch.zeros(n, dtype=torch.float64)
            v[int(torch.randint(n, (1,), generator=generator))] = 1
        elif i % 5 == 4:
            v = gradient + (0.1 * float(gradient.norm()) / n**0.5) * v
        yield v


def compared(subject: Subject, count: int) -> dict[str, Any]:
    """Return how many bounds hold, how far they are above the errors, and the certificates."""
    torch.manual_seed(0)
    model, x, y = trained(subject)
    double = copy.deepcopy(model).double()
    subject.plain(double)
    subject.rounded(model)
    data, loss = Batches(x, y, BATCH), nn.CrossEntropyLoss()
    exact, H = Hessian(double, loss, data), Hessian(model, loss, data, products="finite-differences")
    held, shares, relative, seconds = 0, [], [], [0.0, 0.0]
    for v in directions(exact, count):
        v = v.float()
        start = process_time()
        product = H.product(v)
        middle = process_time()
        expected = exact @ v.double()
        seconds[0] += middle - start
        seconds[1] += process_time() - middle
        away = float((product.vector.double() - expected).norm())
        held += away <= product.error
        shares.append(away / product.error)
        relative.append(away / float(expected.norm()) if float(expected.norm()) else 0.0)
    found, truth = (top_eigenpairs(op, tol=1e-3, seed=1) for op in (H, exact))
    total, total_truth = (trace(op, probes=20, seed=2) for op in (H, exact))
    value, residual = float(found.values[0]), float(found.residuals[0])
    assert H.differences
    return {
        "parameters": H.shape[0],
        "step": H.differences.step.length,
        "products": count,
        "held": held,
        "largest_share_of_the_bound": max(shares),
        "relative_error": {"median": median(relative), "largest": max(relative)},
        "seconds": {"finite differences": seconds[0] / count, "exact, in float64": seconds[1] / count},
        "lambda_max": {
            "value": value, "residual": residual, "exact": float(truth.values[0]),
            "contained": abs(value - float(truth.values[0])) <= residual + float(truth.residuals[0]),
            "converged_to_1e-3": found.converged, "products": found.matvecs,
        },
        "trace": {
            "value": total.value, "error": total.error, "exact": total_truth.value,
            "contained": abs(total.value - total_truth.value) <= total.error,
        },
    }  # fmt: skip


def main() -> None:
    """Compare the networks and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=500, help="of each network")
    parser.add_argument("--json", type=Path, help="where the record goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    networks = {}
    for name, subject in SUBJECTS.items():
        networks[name] = found = compared(subject, given.products)
        print(
            f"{name}: {found['held']} of {found['products']} bounds hold, at most "
            f"{found['largest_share_of_the_bound']:.2f} of the bound; λ_max {found['lambda_max']}"
        )
        if given.json:
            content = {
                "schema": "fedscope/benchmark-finite-differences/1",
                "machine": machine.record(None),
                "networks": networks,
            }
            given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
