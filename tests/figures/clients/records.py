"""Records of a round's clients, made up: with every part, or with some."""

from typing import Any

import numpy as np

from fedscope.records.clients_record import GAPS, QUANTITIES, ClientsRecord

PLACES = (("own", "own"), ("own", "global"), ("global", "own"), ("global", "global"))
SIZES = {"loss": 1.0, "lambda_max": 30.0, "trace": 400.0}


def amount(value: float, stderr: float, *, ends: tuple[float, float] = (-np.inf, np.inf)) -> dict[str, Any]:
    low, high = max(ends[0], value - 2 * stderr), min(ends[1], value + 2 * stderr)
    return {
        "value": value, "stderr_probe": 0.0, "stderr_data": stderr, "dof": 15.0, "bias": 0.0,
        "interval": [low, high], "resolved": True,
    }  # fmt: skip


def record(clients: int = 4, seed: int = 0, *, run: str = "fedavg", **without: None) -> ClientsRecord:
    """A record of ``clients``; a part that is given as None is left out."""
    rng = np.random.default_rng(seed)

    def column(size: float) -> dict[str, Any]:
        values = size * (0.5 + rng.random(clients))
        return {
            "clients": [amount(v, 0.06 * size) for v in values],
            "mean": amount(values.mean(), 0.03 * size),
        }

    def aligned() -> dict[str, Any]:
        share = float(rng.random() * 0.3)
        return {"rayleigh": amount(float(rng.random()), 0.1), "share": amount(share, 0.03, ends=(0, 1))}

    def terms(sign: float = 1.0) -> dict[str, Any]:
        second, rest = rng.random(2) * 0.3
        first = sign * float(rng.normal()) * 0.2
        return {
            "measured": amount(first + second + rest, 0.02), "first": amount(first, 0.02),
            "second": amount(second, 0.02), "remainder": amount(rest, 0.02),
        }  # fmt: skip

    matrix = rng.random((clients + 1, clients + 1)) * 0.6
    matrix = (matrix + matrix.T) / 2
    rows = [[None if i == j else float(v) for j, v in enumerate(row)] for i, row in enumerate(matrix)]
    content = {
        "schema": "fedscope/clients/1",
        "checkpoint": {"sha256": "ab" * 32, "path": "final.pt", "run": run, "round": 3, "client": None,
                       "average": "cld"},
        "start": None,
        "problem": {"samples": 512, "population": 1437, "model": "resnet_digits", "method": "fedavg",
                    "dataset": "digits", "split": "train", "seed": 0, "bn": "eval"},
        "samples_sha256": "cd" * 32,
        "clients": [
            {"number": k, "share": 1 / clients, "samples": 400, "population": 500, "sha256": "ef" * 32}
            for k in range(clients)
        ],
        "rows": "stored",
        "rows_sha256": "01" * 32,
        "measured": ["loss", "lambda_max", "trace", "alignment", "drift", "overlap"],
        "top_k": 5, "tol": 0.01, "probes": 16,
        "flatness": [
            {
                "quantity": quantity,
                "cells": [{"function": f, "weights": w, **column(SIZES[quantity])} for f, w in PLACES],
                "gaps": [{"name": name, **column(SIZES[quantity])} for name in GAPS],
            }
            for quantity in QUANTITIES
        ],
        "alignment": {
            "anchor": "start", "k": 5, "random": 2.5e-4, "separation": 9.0,
            "clients": [{"length": 1.5, "own": aligned(), "global": aligned()} for _ in range(clients)],
            "own": aligned(), "global": aligned(),
        },
        "averaging": {
            "global": {"clients": [terms() for _ in range(clients)], "mean": terms(0.0)},
            "own": {"clients": [terms(-3.0) for _ in range(clients)], "mean": terms(-3.0)},
            "own_buffers": amount(0.2, 0.02), "distance": 1e-6,
        },
        "overlap": {
            "k": 5, "matrix": rows, "random": 2.5e-4, "separation": 9.0,
            "stderr": [[v and 0.02 for v in row] for row in rows],
            "low": [[v and max(0.0, v - 0.04) for v in row] for row in rows],
            "high": [[v and v + 0.04 for v in row] for row in rows],
        },
        "cross_client": None,
        "converged": True,
        "products": {"cells": 500, "alignment": 24, "drift": 8},
        "seconds": {"cells": 60.0, "alignment": 3.0, "drift": 2.0},
        "versions": {},
        **without,
    }  # fmt: skip
    return ClientsRecord.read(content)
