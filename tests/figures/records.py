"""Runs and records of known content, as the commands' JSON has them, for the tests of the report."""

from typing import Any

from fedscope.records.entries import finite
from tests.figures.cases import bowl, spectrum

VERSIONS = {"fedscope": "0.1.0", "torch": "2.0"}


def run(name: str = "one", method: str = "fedavg", *, rounds: int = 4, **settings: Any) -> dict[str, Any]:
    """A run whose accuracy grows by 10 per cent a round and whose loss falls."""
    own = {
        "method": method,
        "options": {},
        "partition": "dirichlet_equal",
        "alpha": 0.5,
        "clients": 10,
        "participation": 0.5,
        "rounds": rounds,
        "epochs": 2,
        "batch_size": 32,
        "lr": 0.1,
        "seed": 3,
        **settings,
    }
    manifest = {
        "format": "fedscope/run/2",
        "name": name,
        "created": "2026-11-21T10:00:00+00:00",
        "settings": own,
        "model": {"name": "resnet_digits"},
        "data": {"name": "digits", "fingerprint": "f" * 64},
        "versions": VERSIONS,
        "added": {"source": "a test", "stated": list(own)},
    }
    metrics = [{"round": i, "accuracy": 0.1 * i, "loss": 2.0 / i} for i in range(1, rounds + 1)]
    return {"manifest": manifest, "metrics": metrics, "checkpoints": {"final.pt": "a" * 64}}


def curvature(
    name: str | None = "one", method: str | None = "fedavg", *, top: float = 50.0, **changes: Any
) -> dict[str, Any]:
    """A Hessian record with two eigenvalues and a density, without clients."""
    values = [{"value": v, "residual": 0.01, "stderr_data": 0.5, "batches": None} for v in (top, top / 2)]
    record = {
        "schema": "fedscope/hessian/1",
        "checkpoint": checkpoint(name, 4),
        "samples_sha256": "5" * 64,
        "batch_sizes": [64, 64],
        "problem": problem(method) | {"operator": "hessian", "engine": "fedscope", "reading": "paper"},
        "lambda_max": values[0],
        "eigenvalues": values,
        "trace": {"value": 10 * top, "stderr_probe": 4.0, "stderr_data": 9.0, "samples": [], "batches": []},
        "density": spectrum(top=top),
        "cross_client": None,
        "versions": VERSIONS,
    }
    return record | changes


def landscape(
    name: str | None = "one", method: str | None = "fedavg", *, round: int = 4, points: int = 11,
    bad: int = 0, curvature: float = 10.0, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """A landscape record of a quadratic bowl."""
    surface = bowl(points=points, bad=bad, curvature=curvature)
    record = finite(
        {
            "schema": "fedscope/landscape/1",
            "checkpoint": checkpoint(name, round),
            "problem": problem(method),
            "axes": [{"name": axis.name, "values": axis.values} for axis in surface.axes],
            "loss": surface.loss,
            "directions": "eigen",
            "center_loss": surface.center_loss,
            "curvature": [curvature, curvature],
            "versions": VERSIONS,
        }
    )
    return record | {"non_finite": bad} | changes


def profile(name: str = "one", method: str = "fedavg", *, points: int = 21) -> dict[str, Any]:
    """A landscape record of a line with a barrier of 1 at its middle, with accuracy and error bars."""
    line = [i / (points - 1) for i in range(points)]
    return landscape(name, method) | {
        "axes": [{"name": "from a to b", "values": line}],
        "loss": [1 + 4 * t * (1 - t) for t in line],
        "directions": "interpolation",
        "stderr": [0.1] * points,
        "metrics": {"accuracy": [0.9 - t * (1 - t) for t in line]},
        "marks": [{"label": "a", "at": [0.0], "distance": 0.0}],
        "barrier": {"height": 1.0, "at": 0.5},
        "curvature": None,
    }


def estimate(value: float | None, stderr: float | None = 0.1) -> dict[str, Any]:
    """An H_N, H_D or trace of a client."""
    return {"value": value, "stderr": stderr, "interval": None, "dof": None}


def crossed(**changes: Any) -> dict[str, Any]:
    """A comparison of three clients whose H_N are powers of ten."""
    both = {"tensor": estimate(12.0), "parameter": estimate(None, None)}
    pairs = [[0.0, 10.0, 100.0], [10.0, 0.0, 1000.0], [100.0, 1000.0, 0.0]]
    agreement = [[1.0, 0.5, 0.25], [0.5, 1.0, 0.75], [0.25, 0.75, 1.0]]
    return {
        "clients": 3,
        "pairs": "distinct",
        "rounds": [4, 4, 3],
        "H_N": both,
        "H_D": both,
        "numbers": [0, 2, 5],
        "traces": [estimate(1.0), estimate(2.0), estimate(3.0)],
        "lambda_max": None,
        "overlap": [0.9, 0.8, 0.7],
        "matrices": {
            "H_N": {"tensor": pairs, "parameter": None},
            "H_D": {"tensor": agreement, "parameter": None},
        },
    } | changes


def checkpoint(name: str | None, round: int) -> dict[str, Any]:
    """A checkpoint of a run, or of a file without one."""
    known = {"run": name, "round": round} if name else {"run": None, "round": None}
    sha256 = f"{abs(hash_of(name or 'file')) + round:064x}"
    return {
        "path": f"/home/me/{name}/final.pt" if name else "/home/me/mine.pt",
        "sha256": sha256,
        "client": None,
        "average": "cld",
    } | known


def problem(method: str | None) -> dict[str, Any]:
    """A problem on digits."""
    return {
        "model": "resnet_digits",
        "method": method,
        "dataset": "digits",
        "split": "train",
        "samples": 128,
        "batch_size": 64,
        "dtype": "float32",
        "seed": 7,
        "device": "cpu",
        "threads": 1,
        "bn": "eval",
    }


def hash_of(text: str) -> int:
    """The same in every process."""
    return int.from_bytes(text.encode()[:24], "big")
