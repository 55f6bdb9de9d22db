"""How many products a report takes with what its stages share, and with nothing shared, to the same errors.

    python benchmarks/products.py CLIENTS/final.pt ROUNDS [--samples 32] [--rtol 0.1] [--json FILE]

CLIENTS is a run whose clients' uploads were kept, ROUNDS the folder of one that kept its rounds. Shared: the
clients' bases are kept and grown between stages, and the density begins with the trace's first probes. Apart:
32 probes and 16 rows first, a new basis in every stage, and probes of the density's own; λ_max of every round
from a random start. The record beside this file is of

    fedscope train --model resnet_digits --clients 16 --partition dirichlet_balanced --alpha 0.5 --rounds 8
        --epochs 3 --threads 1 --name clients
    fedscope train --clients 8 --rounds 30 --epochs 1 --threads 1 --keep-every 1 --name rounds

``control`` tells what the global model's diagonal as a control variate would be worth:
the correlation of the clients' noise with the global model's, probe by probe.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import record

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.landscape import Hessian, cross_client, spectral_density, top_eigenpairs, trace
from fedscope.landscape.heterogeneity.client_diagonals import MEMORY
from fedscope.landscape.heterogeneity.similarity import relative_reach
from fedscope.landscape.operators.basis.krylov_basis import Remainder, Subspace
from fedscope.landscape.operators.probes import rademacher
from fedscope.landscape.spectral.deflation import growing
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source

BATCHES, ROWS, PROBES = 16, 16, 8


@dataclass(frozen=True)
class Clients:
    """The operators of a run's clients, one at a time, at their uploads on their own rows."""

    problem: Problem
    most: int | None = None

    def __iter__(self) -> Iterator[Hessian]:
        for client in list(Participants(self.problem, "client", "own"))[: self.most]:
            yield Hessian(client.model, self.problem.loss_fn, client.batches)


def report(problem: Problem, rtol: float, most: int, *, shared: bool) -> dict[str, Any]:
    """Return the products of λ_max, trace, density and the clients' comparison, and their errors."""
    op = Hessian(problem.model, problem.loss_fn, problem.batches, deal=BATCHES)
    pairs = top_eigenpairs(op, by_sample=False)
    total = trace(op, known=pairs.subspace, keep=4 if shared else 0)
    density = spectral_density(op, probed=total.probed)
    options: dict[str, Any] = {} if shared else {"min_probes": 2 * BATCHES, "basis_memory": 0}
    cross = cross_client(Clients(problem), rtol=rtol, max_probes=most, **options)
    parts = {
        "lambda_max": pairs.matvecs,
        "trace": total.matvecs,
        "density": density.matvecs,
        "cross_client": cross.matvecs,
    }
    return {
        **parts,
        "products": sum(parts.values()),
        "probes": cross.probes[0],
        "rows": cross.deflated,
        "converged": cross.converged,
        "H_N": [cross.H_N["parameter"].value, relative_reach(cross.H_N["parameter"])],
        "H_D": [cross.H_D["parameter"].value, relative_reach(cross.H_D["parameter"])],
    }


def rounds(problems: list[Problem], *, warm: bool) -> dict[str, Any]:
    """Return the products of λ_max along rounds, and its values."""
    vectors, products, values = None, [], []
    for problem in problems:
        op = Hessian(problem.model, problem.loss_fn, problem.batches, deal=BATCHES)
        found = top_eigenpairs(op, start=vectors if warm else None, by_sample=False)
        vectors = found.vectors.T
        products.append(found.matvecs)
        values.append(float(found.values[0]))
    return {"products": sum(products), "each": products, "lambda_max": values}


def control(problem: Problem, clients: int) -> list[float]:
    """Return the correlations of the first clients' noise z ⊙ Rz with the global model's."""
    op = Hessian(problem.model, problem.loss_fn, problem.batches)
    draws = rademacher(op.shape[0], torch.Generator().manual_seed(1), op.dtype, op.device)
    probes = torch.stack([next(draws) for _ in range(PROBES)])
    reference = noise(op, probes)
    found = [noise(client, probes) for client in Clients(problem, clients)]
    return [float((one * reference).sum() / (one.norm() * reference.norm())) for one in found]


def noise(op: Hessian, probes: torch.Tensor) -> torch.Tensor:
    """Return z ⊙ Rz less its mean over probes, with R what a basis leaves of the operator."""
    known: Subspace = growing(op, None, torch.Generator().manual_seed(0), ROWS)(ROWS)
    images = torch.stack([product.vector for product in Remainder(op, known.basis).products(probes)])
    sample = probes.double() * images
    return sample - sample.mean(0)


def main() -> None:
    """Print the products shared and apart, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", type=Path)
    parser.add_argument("rounds", type=Path)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--rtol", type=float, default=0.1)
    parser.add_argument("--max-probes", type=int, default=2048)
    parser.add_argument("--most-rounds", type=int, default=30)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = Source(samples=options.samples, data_dir=options.data_dir, batch_size=options.samples)
    run = RunFolder(options.rounds)
    along = load([run.after_round(number) for number in run.rounds()[: options.most_rounds]], source)
    (problem,) = load([options.clients], source)
    found: dict[str, Any] = {
        "machine": record(None),
        "samples": options.samples,
        "rtol": options.rtol,
        "basis_memory": MEMORY,
        "network": problem.description["model"],
    }
    for name, shared in (("shared", True), ("apart", False)):
        found[name] = {
            "rounds": rounds(along, warm=shared),
            "report": report(problem, options.rtol, options.max_probes, shared=shared),
        }
        print(name, json.dumps(found[name]), flush=True)
    found["control"] = control(problem, 4)
    print("correlations with the global model's noise", found["control"])
    for what in ("rounds", "report"):
        part = found["shared"][what]["products"] / found["apart"][what]["products"]
        print(f"{what}: {part:.2f} of the products of separate measurements")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
