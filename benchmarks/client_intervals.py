"""Bias, coverage and width of the intervals of H_N of populations, and of barriers near 0.

    python benchmarks/client_intervals.py --seed 7000 --json benchmarks/client_intervals.json

H_N and scale-free H_N: clients' linear regressions, whose Hessian E[x xᵀ] is known in closed form; every
client is measured on rows of its own. Barriers: networks of one weight, whose loss along the line between two
of them is a known curve with a bump of so many standard errors. Half-widths are relative to 1.96 standard
deviations of the estimates over the draws.

"""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import machine
import torch
from torch import Tensor, nn

from fedscope.landscape import Batches, cross_client, pair_barriers
from fedscope.landscape.operators.base import Operator, Product

BLOCKS = (("first", 12), ("second", 8), ("third", 4))
READINGS = ("parameter", "tensor")
BUMPS = (0.0, 0.5, 1.0, 2.0, 5.0)
Found = list[tuple[float, float, float]]  # value and interval


class Regression(Operator):
    """The Hessian of a linear regression: the mean of x xᵀ, of all batches at once."""

    def __init__(self, rows: Tensor, batches: int = 16) -> None:
        parts = rows.tensor_split(batches)
        sizes = tuple(len(part) for part in parts)
        super().__init__(rows.shape[1], dtype=rows.dtype, device="cpu", weights=sizes, blocks=BLOCKS)
        self._shares = torch.tensor(sizes, dtype=rows.dtype) / len(rows)
        self._matrices = torch.stack([part.T @ part / len(part) for part in parts])

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        images = (self._matrices @ rows.T).permute(2, 0, 1)  # (m, B, n)
        forms = torch.einsum("mbn,mn->mb", images, rows)
        inner = [None] * len(rows) if onto is None else images @ onto.T
        return [Product(self._shares @ images[i], forms[i], inner[i]) for i in range(len(rows))]

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor:
        """Return those of the batches, which are ``most``."""
        return probes[:, None] * (self._matrices @ probes.T).permute(2, 0, 1)


@dataclass(frozen=True)
class Population:
    """Clients with features s_k ⊙ (a normal vector with a common part), some rows at four times the scale."""

    rows: tuple[int, ...]
    spread: float  # of the clients' scales
    heavy: float = 0.0  # the share of rows at four times the scale

    def scales(self) -> Tensor:
        """(K, n)."""
        generator = torch.Generator().manual_seed(len(self.rows))
        shape = 0.6 + 0.8 * torch.rand(24, generator=generator, dtype=torch.float64)
        sizes = torch.linspace(1 - self.spread, 1 + self.spread, len(self.rows), dtype=torch.float64)
        own = torch.randn(len(self.rows), 24, generator=generator, dtype=torch.float64)
        return shape * sizes[:, None] * (1 + (0.1 * own if self.spread else 0))

    def clients(self, seed: int) -> list[Regression]:
        """Draw the clients' rows."""
        generator, found = torch.Generator().manual_seed(seed), []
        for count, scales in zip(self.rows, self.scales(), strict=True):
            normal = torch.randn(count, 25, generator=generator, dtype=torch.float64)
            x = (math.sqrt(0.7) * normal[:, 1:] + math.sqrt(0.3) * normal[:, :1]) * scales
            large = torch.rand(count, 1, generator=generator) < self.heavy
            found.append(Regression(torch.where(large, 4 * x, x)))
        return found

    def truth(self) -> dict[tuple[str, str], float]:
        """H_N by name and reading."""
        diagonals = self.scales() ** 2 * (1 + 15 * self.heavy)
        lengths = [length for _, length in BLOCKS]
        traces = torch.stack([part.sum(1) for part in diagonals.split(lengths, 1)], 1)
        found = {}
        for reading, rows in zip(READINGS, (diagonals, traces), strict=True):
            norms = rows.norm(dim=1)
            gaps = (norms[:, None] - norms) ** 2
            pairs = len(norms) * (len(norms) - 1)
            found["H_N", reading] = float(gaps.sum() / pairs)
            found["H_N_scale_free", reading] = float((gaps / torch.outer(norms, norms)).sum() / pairs)
        return found


POPULATIONS: Mapping[str, Population] = {
    "3 × 64 rows": Population((64,) * 3, 0.3),
    "24, 100, 600 rows": Population((24, 100, 600), 0.3),
    "4 × 96 rows, H_N = 0": Population((96,) * 4, 0.0),
    "6 × 128 rows, heavy tails": Population((128,) * 6, 0.3, 0.05),
    "2 × 200 rows, far apart": Population((200,) * 2, 0.5),
}


class Curve(nn.Module):
    """A network of one weight w, whose loss of a sample x is x·(4w(1 − w), sin 2πw, sin 4πw)."""

    def __init__(self, at: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([at], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the samples' losses."""
        waves = torch.cat([4 * self.w * (1 - self.w), *((2 * k * math.pi * self.w).sin() for k in (1, 2))])
        return x @ waves


def barriers(bump: float, seeds: range, samples: int = 64) -> tuple[Found, float]:
    """Return the barriers found where the true one is ``bump`` standard errors, and the true one."""
    found, truth, states = [], bump / math.sqrt(samples), [Curve(at).state_dict() for at in (0.0, 1.0)]
    for seed in seeds:
        x = torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x = x * torch.tensor([1, 0.3, 0.3]) + torch.tensor([truth, 0, 0])
        data = Batches(x, torch.zeros(samples), batch_size=samples)
        one = pair_barriers(Curve(), lambda losses, _: losses.mean(), data, states, seed=seed).estimate(0, 1)
        found.append((one.value, *one.interval()))
    return found, truth


def norms(population: Population, seeds: range, probes: int) -> dict[tuple[str, str], Found]:
    """Return what is found of each quantity."""
    found: dict[tuple[str, str], Found] = {}
    for seed in seeds:
        cross = cross_client(population.clients(seed), probes=probes, seed=seed)
        for name, reading in population.truth():
            one = getattr(cross, f"{name}_population")[reading]
            low, high = one.interval()
            found.setdefault((name, reading), []).append((one.value, max(0.0, low), high))
    return found


def summary(found: Found, truth: float) -> dict[str, float]:
    """Return mean, error of the mean, coverage and relative half-width of what was found."""
    values, low, high = torch.tensor(found, dtype=torch.float64).T
    known = values.isfinite()
    spread = float(values[known].std())
    return {
        "truth": truth,
        "mean": float(values[known].mean()),
        "stderr": spread / math.sqrt(int(known.sum())),
        "coverage": float(((low <= truth) & (truth <= high)).double().mean()),
        "half_width": float((high - low)[known].median()) / 2 / (1.96 * spread),
        "empty": float((low == high).double().mean()),
        "not_known": float((~known).double().mean()),
    }


def _tell(rows: Mapping[str, Mapping[str, float]]) -> None:
    key = list(rows)[-1]
    print(key, {part: round(value, 3) for part, value in rows[key].items()}, flush=True)


def main() -> None:
    """Measure all populations and bumps, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    parser.add_argument("--probes", type=int, default=64, help="of each client")
    parser.add_argument("--json", type=Path, help="where the record goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(given.seed, given.seed + given.draws)
    rows: dict[str, dict[str, float]] = {}
    for name, population in POPULATIONS.items():
        truth = population.truth()
        for (what, reading), found in norms(population, seeds, given.probes).items():
            rows[f"{what} ({reading}), {name}"] = summary(found, truth[what, reading])
            _tell(rows)
    for bump in BUMPS:
        rows[f"barrier of {bump:g} standard errors"] = summary(*barriers(bump, seeds))
        _tell(rows)
    if given.json:
        content = {
            "schema": "fedscope/benchmark-client-intervals/1", "machine": machine.record(None),
            "draws": given.draws, "seed": given.seed, "probes": given.probes, "intervals": rows,
        }  # fmt: skip
        given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
