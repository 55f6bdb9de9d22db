"""Surfaces and spectra with known shapes, for the tests of the figures."""

import math
from typing import Any

import torch
from torch import Tensor

from fedscope.landscape.spectral.spectral_results import Density, Estimate
from fedscope.landscape.surfaces.surface_results import Axis, Mark, Surface
from fedscope.records.entries import density_entry, finite
from fedscope.records.estimates import Eigenvalue
from fedscope.records.landscape_record import LandscapeRecord

CURVATURES = torch.tensor([8.0, 3.0, 1.0, 0.5, 0.2, 0.1], dtype=torch.float64)  # of the quadratic below


def bowl(
    *, curvature: float = 10.0, floor: float = 0.2, span: float = 1.0, points: int = 11, bad: int = 0
) -> Surface:
    """A quadratic bowl, floor + curvature·(a² + b²)/2; the first ``bad`` grid points are NaN or infinite."""
    line = torch.linspace(-span, span, points, dtype=torch.float64)
    loss = floor + 0.5 * curvature * (line[:, None] ** 2 + line[None, :] ** 2)
    loss.view(-1)[:bad] = torch.tensor([math.nan, math.inf]).repeat(bad)[:bad]
    return Surface(
        axes=(Axis("ε₀", line), Axis("ε₁", line)),
        loss=loss,
        directions="eigen",
        center_loss=floor,
        non_finite=bad,
    )


def spectrum(*, top: float = 50.0, sigma: float = 0.5, outlier: float = 1e-5) -> dict[str, Any]:
    """A Gaussian bulk at zero and one eigenvalue of weight ``outlier`` at ``top``, both of width σ."""
    grid = torch.linspace(-10 * sigma, top + 10 * sigma, 801, dtype=torch.float64)
    nodes = torch.tensor([[0.0, top]], dtype=torch.float64)
    weights = torch.tensor([[1 - outlier, outlier]], dtype=torch.float64)
    kernels = torch.exp(-0.5 * ((grid[:, None] - nodes) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    density = Density(
        grid=grid,
        density=(kernels * weights).sum(dim=1),
        stderr=torch.zeros_like(grid),
        nodes=nodes,
        weights=weights,
        sigma=sigma,
        moments=(Estimate(top * outlier, 0.0), Estimate(top**2 * outlier, 0.0)),
        matvecs=2,
        seed=0,
    )
    return finite(density_entry(density))


def quadratic(points: Tensor) -> Tensor:
    """The loss 0.3 + Σ cᵢxᵢ²/2 at (…, 6) weights."""
    return 0.3 + 0.5 * (CURVATURES * points**2).sum(-1)


def accuracy(loss: Tensor) -> Tensor:
    """A share of right answers that falls with the loss."""
    return 0.92 * torch.exp(-0.25 * (loss - 0.3))


def plane_of(weights: Tensor, labels: list[str], *, path: bool, points: int = 21) -> Surface:
    """The principal plane of networks with (k, 6) weights, with the networks marked."""
    middle = weights.mean(0)
    basis = torch.linalg.svd(weights - middle).Vh[:2]
    at = (weights - middle) @ basis.T
    distances = (weights - middle - at @ basis).norm(dim=1)
    low, high = at.min(0).values, at.max(0).values
    margin = 0.2 * (high - low)
    axes = [torch.linspace(a, b, points).double() for a, b in zip(low - margin, high + margin, strict=True)]
    loss = quadratic(middle + axes[0][:, None, None] * basis[0] + axes[1][None, :, None] * basis[1])
    pairs = zip(labels, at.tolist(), distances.tolist(), strict=True)
    return Surface(
        axes=(Axis("component 1", axes[0]), Axis("component 2", axes[1])),
        loss=loss,
        directions="pca",
        center_loss=float(quadratic(middle)),
        non_finite=0,
        metrics={"accuracy": accuracy(loss)},
        marks=tuple(Mark(label, (x, y), distance) for label, (x, y), distance in pairs),
        path=path,
    )


def trajectory(rounds: int = 30) -> Surface:
    """Rounds of noisy descent on the quadratic, on the plane of its principal components."""
    draw = torch.Generator().manual_seed(3)
    noise = 0.12 * torch.randn(rounds, 6, generator=draw, dtype=torch.float64)
    steps = torch.arange(rounds, dtype=torch.float64)[:, None]
    start = torch.tensor([1.5, -2.0, 2.5, 2.0, -1.5, 1.0], dtype=torch.float64)
    weights = start * torch.exp(-0.08 * CURVATURES.clamp(max=4) * steps) + noise
    return plane_of(weights, [f"round {t + 1}" for t in range(rounds)], path=True)


def drift(clients: int = 16, spread: float = 1.0) -> Surface:
    """A global model, and clients scattered around it, on the plane of their principal components."""
    draw = torch.Generator().manual_seed(5)
    moves = spread * torch.randn(clients, 6, generator=draw, dtype=torch.float64) / CURVATURES.sqrt()
    start = torch.tensor([0.2, 0.4, 0.3, 0.1, 0.0, 0.2], dtype=torch.float64)
    weights = torch.cat([start[None], start + moves])
    return plane_of(weights, ["global", *(f"client {i}" for i in range(clients))], path=False)


def profile(
    *, height: float = 1.0, points: int = 41, ends: tuple[str, str] = ("a", "b"), bad: int = 0
) -> Surface:
    """A line between two networks over a barrier of ``height`` at its middle, with errors and accuracies."""
    line = torch.linspace(-0.25, 1.25, points, dtype=torch.float64)
    loss = 0.5 + 0.2 * line + height * (4 * line * (1 - line)).clamp(min=0) + (line * (line - 1)).clamp(min=0)
    loss[:bad] = math.nan
    return Surface(
        axes=(Axis("from a to b", line),),
        loss=loss,
        directions="line",
        center_loss=0.5,
        non_finite=bad,
        stderr=0.03 + 0.05 * loss,
        metrics={"accuracy": accuracy(loss)},
        marks=(Mark(ends[0], (0.0,), 0.0), Mark(ends[1], (1.0,), 0.0)),
    )


def eigenvalues(count: int, *, top: float = 50.0, decay: float = 0.9) -> list[Eigenvalue]:
    """Entries of λᵢ = top/i^decay ± 10 %, and an interval of the population that leaves them out."""
    values = [top / (i + 1) ** decay for i in range(count)]
    return [
        Eigenvalue.read(
            {"value": v, "residual": 0.0, "stderr_data": 0.1 * v / 1.96, "interval": [0.5 * v, 0.9 * v]}
        )
        for v in values
    ]


def crossing(clients: int = 6, *, seed: int = 0, unresolved: bool = False) -> dict[str, Any]:
    """The entry ``cross_client`` of clients whose norms are 1, 2, …, with cosines that fall with the gap."""
    norms = 1.0 + torch.rand(clients, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    H_N = (norms[:, None] - norms) ** 2 + 1e-3 * (1 - torch.eye(clients))
    place = torch.arange(clients)
    H_D = 0.97 ** (place[:, None] - place).abs().double()
    if unresolved:
        H_N[0, 1] = H_N[1, 0] = H_D[0, 1] = H_D[1, 0] = math.nan
    mean = {"value": 0.123, "stderr": 0.01, "interval": [0.1, 0.15], "dof": 15}
    entry: dict[str, Any] = {
        "clients": clients,
        "pairs": "distinct",
        "numbers": [2 * i for i in range(clients)],
        "H_N": {"tensor": mean, "parameter": mean},
        "H_D": {"tensor": mean, "parameter": mean},
        "matrices": {
            "H_N": {"tensor": H_N, "parameter": 2 * H_N},
            "H_D": {"tensor": H_D, "parameter": H_D},
        },
        "traces": [{"value": 100.0 * norm, "stderr": 5.0} for norm in norms.tolist()],
        "lambda_max": None,
    }
    plain = finite(entry)
    del plain["non_finite"]
    return plain


def landscape_record(surface: Surface, *, round: int = 5, run: str = "a", **more: Any) -> dict[str, Any]:
    """The surface as ``fedscope plot-landscape --json`` writes it."""
    record = finite(
        {
            "schema": "fedscope/landscape/1",
            "checkpoint": {
                "path": f"{run}.pt",
                "sha256": "0" * 64,
                "run": run,
                "round": round,
                "client": None,
            },
            "problem": {"method": run, "samples": 512},
            "axes": [{"name": axis.name, "values": axis.values} for axis in surface.axes],
            "loss": surface.loss,
            "directions": surface.directions,
            "center_loss": surface.center_loss,
            "curvature": [10.0, 10.0],
            "stderr": surface.stderr,
            "metrics": dict(surface.metrics),
            "metrics_stderr": dict(surface.metrics_stderr),
            "center_metrics": dict(surface.center_metrics),
            "marks": [{"label": m.label, "at": m.at, "distance": m.distance} for m in surface.marks],
            "path": surface.path,
            "computed": surface.computed,
            "interpolation_error": surface.interpolation_error,
            "versions": {},
            **more,
        }
    )
    return {**record, "non_finite": surface.non_finite}


def recorded(surface: Surface, **more: Any) -> LandscapeRecord:
    """The record of the surface."""
    return LandscapeRecord.read(landscape_record(surface, **more))


def film_records(rounds: int = 3, runs: tuple[str, ...] = ("a",)) -> list[LandscapeRecord]:
    """Bowls that deepen from round to round, along the directions of the last one."""
    last = {"run": "a", "round": rounds, "sha256": "0" * 64}
    return [
        recorded(bowl(floor=1.0 / t, points=7), round=t, run=run, directions_of=last)
        for run in runs
        for t in range(1, rounds + 1)
    ]
