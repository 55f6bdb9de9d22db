"""How often the intervals of one round's numbers cover the truth: two clients with populations of their own.

Each client's samples are a population of two classes more than others, so that there is a gap; all samples
are the global population. Draws are with replacement, and the truth is of the whole populations.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.landscape import Batches, Hessian
from fedscope.landscape.heterogeneity.one_round.at_weights import LossAtWeights, cell
from fedscope.landscape.heterogeneity.one_round.averaging_cost import averaging_cost, expansions
from fedscope.landscape.heterogeneity.one_round.eigenspaces import overlaps, update_alignment
from fedscope.landscape.heterogeneity.one_round.flatness_gap import Place, flatness_gap
from fedscope.landscape.heterogeneity.one_round.paired import Paired, total
from fedscope.landscape.loss.flat_loss import FlatLoss
from tests.landscape.coverage import BatchMatrices, sample_hessians

from .clients import flat

SHARES = (0.6, 0.4)
BATCHES, SAMPLES = 16, 48
K = 2  # the second eigenvalue at the global weights is well above the third; at a client's the first is above
Truths = Mapping[str, float]


class SampleMatrices(BatchMatrices):
    """The mean of dense symmetric matrices (N, n, n) of samples, in batches."""

    def __init__(self, matrices: Tensor) -> None:
        super().__init__(matrices.view(BATCHES, SAMPLES, *matrices.shape[1:]).mean(1), SAMPLES)
        self._samples = matrices

    def sample_forms(self, v: Tensor) -> Tensor:
        """Those of all samples."""
        return torch.einsum("i,sij,j->s", v, self._samples, v)


@dataclass(frozen=True)
class World:
    """The models, each population's samples, and the Hessians of all samples at all models."""

    models: list[nn.Module]  # of the two clients, and the global one
    inputs: Tensor
    targets: Tensor
    rows: list[Tensor]  # of the two clients, and of all
    hessians: list[Tensor]  # at each model, (P, n, n)

    def operator(self, at: int, rows: Tensor) -> SampleMatrices:
        return SampleMatrices(self.hessians[at][rows])

    def losses(self, at: int, rows: Tensor) -> Tensor:
        with torch.no_grad():
            values = cross_entropy(self.models[at](self.inputs[rows]), self.targets[rows], reduction="none")
        return values.view(BATCHES, SAMPLES).mean(1)

    def draw(self, of: int, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(self.rows[of]), (BATCHES * SAMPLES,), generator=generator)
        return self.rows[of][chosen]


def world(size: int = 500) -> World:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    targets = torch.randint(3, (size,), generator=generator)
    inputs = torch.randn(size, 4, generator=generator).double() + 1.2 * torch.eye(4).double()[targets]
    center = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    mostly = torch.rand(size, generator=generator) < torch.tensor([0.9, 0.5, 0.1])[targets]
    rows = [mostly.nonzero().flatten(), (~mostly).nonzero().flatten(), torch.arange(size)]
    _train(center, inputs, targets, steps=150)
    clients = [copy.deepcopy(center) for _ in range(2)]
    for client, own in zip(clients, rows, strict=False):
        _train(client, inputs[own], targets[own], steps=30)
    models: list[nn.Module] = [*clients, center]
    return World(models, inputs, targets, rows, [sample_hessians(model, inputs, targets) for model in models])


def _train(model: nn.Module, inputs: Tensor, targets: Tensor, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def estimates(found: World, seed: int) -> dict[str, Paired]:
    """Return every number of a draw."""
    generator = torch.Generator().manual_seed(seed)
    rows = [found.draw(of, generator) for of in range(3)]
    names = ("client 0", "client 1", "global")

    @partial(_cached, {})
    def at(of: int, model: int) -> LossAtWeights:
        op = found.operator(model, rows[of])
        return cell(op, names[of], losses=found.losses(model, rows[of]), k=K, tol=1e-3, seed=seed)

    numbers: dict[str, Paired] = {}
    for quantity in ("loss", "lambda_max", "trace"):
        cells: dict[Place, list[Paired]] = {
            ("own", "own"): [at(k, k).of(quantity) for k in (0, 1)],  # type: ignore[misc]
            ("own", "global"): [at(k, 2).of(quantity) for k in (0, 1)],  # type: ignore[misc]
            ("global", "own"): [at(2, k).of(quantity) for k in (0, 1)],  # type: ignore[misc]
            ("global", "global"): [at(2, 2).of(quantity)] * 2,  # type: ignore[list-item]
        }
        table = flatness_gap(quantity, SHARES, cells)
        numbers[f"{quantity} at own"] = table.cells["own", "own"][0]
        for name in ("discrepancy", "averaging_own", "averaging_global"):
            numbers[f"{quantity} {name} 0"] = table.gaps(name)[0]
            numbers[f"{quantity} {name}"] = table.gap(name)
    operators = [found.operator(place, rows[place]) for place in range(3)]
    spaces = [cell(operators[k], names[k], quantities=(), k=1, seed=seed).space for k in (0, 1)]
    pairs, _ = overlaps(operators[:2], [space for space in spaces if space])
    numbers["overlap"] = pairs[0][1]  # type: ignore[assignment]
    quotients = []
    for k in (0, 1):
        update = flat(found.models[k]) - flat(found.models[2])
        own = update_alignment(found.operator(2, rows[k]), at(k, 2).space, update, samples=names[k])
        every = update_alignment(operators[2], at(2, 2).space, update, samples="global")
        quotients.append(every.rayleigh)
        numbers[f"rayleigh own {k}"], numbers[f"share own {k}"] = own.rayleigh, own.share  # type: ignore[assignment]
        numbers[f"share global {k}"] = every.share  # type: ignore[assignment]
    numbers["rayleigh global"] = total(zip(SHARES, quotients, strict=True))
    return numbers


def truths(found: World) -> Truths:
    """Return the numbers of the populations, densely."""
    means = {(of, at): found.hessians[at][found.rows[of]].mean(0) for of in range(3) for at in range(3)}
    values: dict[str, float] = {}
    for quantity, function in _DENSE.items():
        dense = {key: function(found, *key, means[key]) for key in means}
        values[f"{quantity} at own"] = dense[0, 0]
        for name, gaps in {
            "discrepancy": [dense[2, 2] - dense[k, k] for k in (0, 1)],
            "averaging_own": [dense[k, 2] - dense[k, k] for k in (0, 1)],
            "averaging_global": [dense[2, 2] - dense[2, k] for k in (0, 1)],
        }.items():
            values[f"{quantity} {name} 0"] = gaps[0]
            values[f"{quantity} {name}"] = SHARES[0] * gaps[0] + SHARES[1] * gaps[1]
    top = {key: torch.linalg.eigh(matrix).eigenvectors[:, -K:] for key, matrix in means.items()}
    values["overlap"] = float(top[0, 0][:, -1] @ top[1, 1][:, -1]) ** 2
    along = []
    for k in (0, 1):
        u = flat(found.models[k]) - flat(found.models[2])
        u /= u.norm()
        values[f"rayleigh own {k}"] = float(u @ means[k, 2] @ u)
        values[f"share own {k}"] = float((top[k, 2].T @ u).square().sum())
        values[f"share global {k}"] = float((top[2, 2].T @ u).square().sum())
        along.append(float(u @ means[2, 2] @ u))
    values["rayleigh global"] = SHARES[0] * along[0] + SHARES[1] * along[1]
    return values


def _population_loss(found: World, of: int, at: int, _: Tensor) -> float:
    with torch.no_grad():
        return float(
            cross_entropy(found.models[at](found.inputs[found.rows[of]]), found.targets[found.rows[of]])
        )


_DENSE: Mapping[str, Callable[[World, int, int, Tensor], float]] = {
    "loss": _population_loss,
    "lambda_max": lambda found, of, at, matrix: float(torch.linalg.eigvalsh(matrix)[-1]),
    "trace": lambda found, of, at, matrix: float(matrix.trace()),
}


def costs(found: World, rows: Tensor | None = None) -> dict[str, Paired]:
    """Return the terms of the averaging cost of the global loss, on some samples or on all of them."""
    places = torch.arange(len(found.inputs)) if rows is None else rows
    batches = Batches(
        found.inputs[places], found.targets[places], SAMPLES if rows is not None else len(places)
    )
    center = found.models[2]
    moved = torch.stack([flat(model) - flat(center) for model in found.models[:2]])
    op, loss = Hessian(center, cross_entropy, batches), FlatLoss(center, cross_entropy, batches)
    mean = averaging_cost(SHARES, expansions(op, loss, moved, samples="global")).mean
    return {
        "measured": mean.measured,
        "first": mean.first,
        "second": mean.second,
        "remainder": mean.remainder,
    }


def _cached(
    known: dict[tuple[int, int], LossAtWeights], function: Callable[[int, int], LossAtWeights]
) -> Callable[[int, int], LossAtWeights]:
    def found(of: int, model: int) -> LossAtWeights:
        if (of, model) not in known:
            known[of, model] = function(of, model)
        return known[of, model]

    return found
