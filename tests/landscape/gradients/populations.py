"""Clients whose gradients' distributions are known."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.landscape.gradients.inner_products import of_gradients
from fedscope.landscape.gradients.noise_results import GradientNoise, Ratio
from fedscope.landscape.gradients.noise_scale import gradient_noise_of
from fedscope.landscape.spectral.spectral_results import Estimate


@dataclass(frozen=True)
class Clients:
    """K clients in n dimensions: gradients (K, n), the samples' spread (n,) about them, sizes of batches."""

    gradients: Tensor
    spread: Tensor
    sizes: tuple[int, ...]
    tails: float = 0.0  # of a log-normal factor on each sample's noise

    @classmethod
    def of(
        cls, n: int, clients: int, *, signal: float = 1.0, apart: float = 0.3, noise: float = 1.0,
        sizes: tuple[int, ...] = (8,) * 16, tails: float = 0.0,
    ) -> "Clients":  # fmt: skip
        generator = torch.Generator().manual_seed(99)
        common = signal * torch.randn(1, n, generator=generator, dtype=torch.float64)
        own = apart * torch.randn(clients, n, generator=generator, dtype=torch.float64)
        spread = noise * torch.linspace(0.3, 2, n, dtype=torch.float64)
        return cls(common + own, spread, sizes, tails)

    @property
    def p(self) -> Tensor:
        return torch.full((len(self.gradients),), 1 / len(self.gradients), dtype=torch.float64)

    def truth(self) -> dict[str, float]:
        mean = self.p @ self.gradients
        apart, g2 = (self.gradients - mean).square().sum(1), float(mean @ mean)
        zeta2, trace = float(self.p @ apart), float(self.spread.square().sum())
        own = float(self.gradients[0].square().sum())
        return {
            "trace": trace, "square": own, "scale": trace / own, "between": zeta2, "apart": float(apart[0]),
            "relative": zeta2 / g2, "dissimilarity": 1 + zeta2 / g2, "whole square": g2, "within": trace,
            "whole trace": trace + zeta2, "whole scale": (trace + zeta2) / g2,
        }  # fmt: skip

    def draw(self, seed: int) -> list[Tensor]:
        """Return the batches' gradients (B, n) of each client."""
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.tensor(self.sizes)
        n, total = len(self.spread), int(sizes.sum())
        found = []
        for own in self.gradients:
            if self.tails:
                noise = torch.randn(total, n, generator=generator, dtype=torch.float64)
                scale = torch.randn(total, 1, generator=generator, dtype=torch.float64)
                noise *= torch.exp(self.tails * scale - self.tails**2)  # of variance 1
                means = torch.stack([part.mean(0) for part in noise.split(self.sizes)])
            else:
                means = torch.randn(len(sizes), n, generator=generator, dtype=torch.float64)
                means /= sizes.double().sqrt()[:, None]
            found.append(own + self.spread * means)
        return found

    def measured(self, gradients: list[Tensor], finite: float = 1.0) -> GradientNoise:
        count = len(gradients)
        products = of_gradients(gradients, [self.sizes] * count, [finite] * count)
        return gradient_noise_of(products, self.p, gradients=0, passes=0)


def numbers(found: GradientNoise) -> dict[str, tuple[float, tuple[float, float]]]:
    """Return each number's value and interval, by name."""
    one = found.clients[0]
    every: dict[str, Estimate | Ratio] = {
        "trace": one.trace, "square": one.square, "scale": one.scale, "between": found.between,
        "apart": found.apart[0], "relative": found.relative, "dissimilarity": found.dissimilarity,
        "whole square": found.whole.square, "within": found.within, "whole trace": found.whole.trace,
        "whole scale": found.whole.scale,
    }  # fmt: skip
    return {name: (number.value, number.interval()) for name, number in every.items()}
