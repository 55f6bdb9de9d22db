"""After how many products λ_max has its residual, and after how many it is certified.

    python benchmarks/certificates.py --json benchmarks/certificates.json [--steps N]…

The GPT-2 of ``command_networks.py`` after so many steps of training. A certified search goes on after the
residual is as small as was asked for: both counts are read off one search.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import command_networks
import machine
import torch
from torch import nn

from fedscope.landscape import Batches, Hessian, top_eigenpairs
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.ritz import Ritz, Wanted

TOL = 1e-3


def counted(steps: int) -> dict[str, Any]:
    """Return the two counts, and the value."""
    model, batches = command_networks.trained(steps), command_networks.text()
    ids, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    op = Hessian(model.eval(), nn.functional.cross_entropy, Batches(ids, targets, len(ids)))
    converged: list[int] = []

    class Noting(Ritz):
        """Notes when the residual is small enough."""

        @classmethod
        def of(cls, krylov: Lanczos, wanted: Wanted, tol: float) -> Ritz:
            found = Ritz.of(krylov, wanted, tol)
            converged.extend([krylov.steps] * found.converged)
            return found

    with patch("fedscope.landscape.spectral.eigenpairs.Ritz", Noting):
        found = top_eigenpairs(op, tol=TOL, by_sample=False)
    assert bool(found.certified.all())
    return {
        "steps": steps,
        "lambda_max": float(found.values[0]),
        "residual_below_tol": converged[0],
        "certified": found.matvecs,
    }


def main() -> None:
    """Count, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("certificates.json"))
    parser.add_argument("--steps", type=int, action="append")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [counted(steps) for steps in given.steps or (0, 20, 100, 300)]
    content = {"tol": TOL, "rows": rows, "machine": machine.record(None)}
    given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
