"""The parts of the record of a round's clients: flatness gaps, alignment, the cost of averaging, overlaps.

Another quantity between clients is a method of :class:`Measuring` and a line of :meth:`Measuring.entries`.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedscope.landscape.heterogeneity.one_round.at_weights import QUANTITIES, LossAtWeights, Quantity, cell
from fedscope.landscape.heterogeneity.one_round.averaging_cost import Expansion, averaging_cost, expansions
from fedscope.landscape.heterogeneity.one_round.eigenspaces import (
    Alignment,
    Eigenspace,
    overlaps,
    update_alignment,
)
from fedscope.landscape.heterogeneity.one_round.flatness_gap import GAPS, Function, Place, Point, flatness_gap
from fedscope.landscape.heterogeneity.one_round.paired import Paired, difference, mean_of_batches, total
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.records.clients_record import SYMBOLS, amount_entry
from fedscope.records.entries import Record
from fedscope.workflows.clients.clients_entries import aligned_entry, column_entry, drift_entry, ends_of
from fedscope.workflows.clients.clients_request import ClientsRequest
from fedscope.workflows.clients.forward_parts import barriers_entry, critical_entry, noise_entry
from fedscope.workflows.clients.round import LoadedRound, weights
from fedscope.workflows.curvature.compared_clients import compare_clients
from fedscope.workflows.requests import CrossClientRequest
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.study import Session

OF_LOSSES = (
    ("noise", "gradient noise, gradients", noise_entry),
    ("critical", "critical steps, passes", critical_entry),
    ("barriers", "barriers, pairs", barriers_entry),
)
GLOBAL = "global"  # the name of its set of samples


@dataclass
class Measuring:
    """One round, and what was measured of it so far."""

    one: LoadedRound
    request: ClientsRequest
    session: Session
    curvature: Callable[[nn.Module, Batches], LossOperator]
    # by place in the clients
    cells: dict[tuple[Function, Point], dict[int, LossAtWeights]] = field(default_factory=dict)
    products: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    passes: dict[str, int] = field(default_factory=dict)
    converged: bool = True

    def entries(self) -> Record:
        only = self.request.only
        self._measure_cells()
        return {
            "flatness": [self._flatness(quantity) for quantity in QUANTITIES if quantity in only],
            "alignment": self._alignment() if "alignment" in only else None,
            "averaging": self._averaging() if "drift" in only else None,
            "overlap": self._overlap() if "overlap" in only else None,
            **self._of_losses(),
        }

    def _of_losses(self) -> Record:
        found: Record = {}
        for name, title, make in OF_LOSSES:
            if name in self.request.only:
                with self._part(name, title) as progress:
                    found[name], self.passes[name] = make(self.one, self.request, progress)
        return found

    def spent(self) -> Record:
        return {
            "converged": self.converged,
            "products": dict(self.products),
            "seconds": dict(self.seconds),
            "passes": self.passes,
        }

    def diagonals(self, participants: Participants) -> Record:
        """Return H_N and H_D of the clients, as `fedscope hessian --clients` has them."""
        with self._part("diagonals", "H_N and H_D, products") as progress:
            found = compare_clients(
                participants,
                CrossClientRequest().settled("paper"),
                lambda model, batches: self.session.cache.operator(self.curvature(model, batches)),
                seed=self.one.problem.source.seed,
                progress=progress,
            )
        self.products["diagonals"] += found.matvecs
        return found.record()

    def _measure_cells(self) -> None:
        problem, only = self.one.problem, self.request.only
        aligned = self.request.top_k if "alignment" in only else 0
        apart = self.request.top_k if "overlap" in only else 0
        wanted = tuple(quantity for quantity in QUANTITIES if quantity in only)
        first = wanted if self.request.start else tuple(q for q in wanted if q == "loss")
        if not (wanted or aligned or apart):
            return
        measured = ", ".join([*(SYMBOLS[one] for one in wanted), *["eigenspaces"] * bool(aligned or apart)])
        with self._part("cells", f"{measured}, products") as progress:
            self._cell("global", "global", 0, problem.model, wanted, max(aligned, apart), progress)
            if self.one.start:
                self._cell("global", "start", 0, self.one.start.model, first, 0, progress)
            for place, client in enumerate(self.one.clients):
                self._cell("own", "own", place, client.model, wanted, apart, progress)
                self._cell("own", "global", place, problem.model, wanted, aligned, progress)
                self._cell("global", "own", place, client.model, wanted, 0, progress)
                if self.one.start:
                    self._cell("own", "start", place, self.one.start.model, first, 0, progress)

    def _cell(
        self,
        function: Function,
        point: Point,
        place: int,
        model: nn.Module,
        quantities: Sequence[Quantity],
        k: int,
        progress: Progress,
    ) -> None:
        if not (quantities or k):
            return
        op = self.curvature(model, self._batches(function, place))
        found = cell(
            self.session.cache.operator(op) if k or set(quantities) - {"loss"} else op,
            self._samples(function, place),
            losses=op.loss.losses if "loss" in quantities else None,
            quantities=quantities,
            k=k,
            tol=self.request.tol,
            probes=self.request.probes,
            seed=self.one.problem.source.seed,
        )
        self.cells.setdefault((function, point), {})[place] = found
        self.converged = self.converged and found.converged
        self.products["cells"] += found.matvecs
        progress(self.products["cells"], None, f"client {self.one.clients[place].number}")

    def _batches(self, function: Function, place: int) -> Batches:
        return self.one.problem.batches if function == "global" else self.one.clients[place].batches

    def _samples(self, function: Function, place: int) -> str:
        return GLOBAL if function == "global" else f"client {self.one.clients[place].number}"

    def _flatness(self, quantity: Quantity) -> Record:
        columns: dict[Place, list[Paired]] = {}
        for key, found in self.cells.items():
            column = [
                found[place if place in found else 0].of(quantity) for place in range(len(self.one.clients))
            ]
            known = [one for one in column if one is not None]
            if len(known) == len(column):
                columns[key] = known
        table = flatness_gap(quantity, self.one.shares, columns)
        return {
            "quantity": quantity,
            "cells": [
                {"function": function, "weights": point, **column_entry(column, table.mean(function, point))}
                for (function, point), column in table.cells.items()
            ],
            "gaps": [{"name": name, **column_entry(table.gaps(name), table.gap(name))} for name in GAPS],
        }

    def _alignment(self) -> Record:
        problem, anchor = self.one.problem, weights(self.one.anchor(self.request.anchor))
        updates = [weights(client.model) - anchor for client in self.one.clients]
        with self._part("alignment", "alignment, products") as progress:
            op = self.session.cache.operator(self.curvature(problem.model, problem.batches))
            space = self._space("global", "global", 0)
            overall = [self._aligned(op, space, update, GLOBAL, progress) for update in updates]
            own = []
            for place, (client, update) in enumerate(zip(self.one.clients, updates, strict=True)):
                op = self.session.cache.operator(self.curvature(problem.model, client.batches))
                space = self._space("own", "global", place)
                own.append(self._aligned(op, space, update, self._samples("own", place), progress))
        return {
            "anchor": self.request.anchor,
            "k": self.request.top_k,
            "random": own[0].random,
            "separation": self._separation(("global", "global"), ("own", "global")),
            "clients": [
                {
                    "length": mine.length,
                    "own": aligned_entry([(1.0, mine)]),
                    "global": aligned_entry([(1.0, theirs)]),
                }
                for mine, theirs in zip(own, overall, strict=True)
            ],
            "own": aligned_entry(list(zip(self.one.shares, own, strict=True))),
            "global": aligned_entry(list(zip(self.one.shares, overall, strict=True))),
        }

    def _aligned(
        self, op: Operator, space: Eigenspace | None, update: Tensor, samples: str, progress: Progress
    ) -> Alignment:
        found = update_alignment(op, space, update, samples=samples)
        self.products["alignment"] += found.matvecs
        progress(self.products["alignment"], None)
        return found

    def _space(self, function: Function, point: Point, place: int) -> Eigenspace | None:
        return self.cells[function, point][place].space

    def _separation(self, *places: Place) -> float:
        found = (one.space.separation for place in places for one in self.cells[place].values() if one.space)
        return min(found, default=math.nan)

    def _averaging(self) -> Record:
        one, bn = self.one, self.request.bn
        mean = weights(one.mean)
        rows = torch.stack([weights(client.model) - mean for client in one.clients])
        with self._part("drift", "cost of averaging, products") as progress:
            overall = self._expansions(one.problem.batches, rows, GLOBAL, progress)
            own = [
                self._expansions(client.batches, rows[k : k + 1], self._samples("own", k), progress)[0]
                for k, client in enumerate(one.clients)
            ]
            buffers = self._own_buffers() if one.has_statistics and bn != "batch" else None
        return {
            "global": drift_entry(averaging_cost(one.shares, overall)),
            "own": drift_entry(averaging_cost(one.shares, own)),
            "own_buffers": buffers and amount_entry(buffers),
            "distance": one.distance,
        }

    def _expansions(
        self, batches: Batches, rows: Tensor, samples: str, progress: Progress
    ) -> tuple[Expansion, ...]:
        op = self.curvature(self.one.mean, batches)
        loss = self._loss(self.one.mean, batches, op)
        found = expansions(self.session.cache.operator(op), loss, rows, samples=samples)
        self.products["drift"] += len(rows)
        progress(self.products["drift"], None)
        return found

    def _own_buffers(self) -> Paired:
        """Return Σ p_k F(w_k) − F(w̄), each model with its own statistics."""
        problem = self.one.problem
        op = self.curvature(self.one.mean, problem.batches)
        center = mean_of_batches(op, GLOBAL, op.loss.losses)
        losses = (self._loss(client.model, problem.batches, op).losses for client in self.one.clients)
        gaps = [difference(mean_of_batches(op, GLOBAL, each), center) for each in losses]
        return total(zip(self.one.shares, gaps, strict=True))

    def _loss(self, model: nn.Module, batches: Batches, op: LossOperator) -> FlatLoss:
        loss = FlatLoss(model, self.one.problem.loss_fn, batches, bn=self.request.bn)
        loss.batches = op.loss.batches
        return loss

    def _overlap(self) -> Record:
        problem, clients = self.one.problem, self.one.clients
        spaces = [self._space("own", "own", place) for place in range(len(clients))]
        spaces.append(self._space("global", "global", 0))

        def operators() -> Iterator[Operator]:
            for client in clients:
                yield self.session.cache.operator(self.curvature(client.model, client.batches))
            yield self.session.cache.operator(self.curvature(problem.model, problem.batches))

        known = [space for space in spaces if space]
        with self._part("overlap", "overlap of eigenspaces, products") as progress:
            found, spent = overlaps(operators(), known)
            progress(spent, None)
        self.products["overlap"] += spent
        k, n = known[0].k, known[0].rows.shape[1]
        ends = [[ends_of(one) for one in row] for row in found]
        return {
            "k": k,
            "random": k / n,
            "separation": self._separation(("global", "global"), ("own", "own")),
            "matrix": [[one and one.value for one in row] for row in found],
            "stderr": [[one and one.stderr_data for one in row] for row in found],
            "low": [[low for low, _ in row] for row in ends],
            "high": [[high for _, high in row] for row in ends],
        }

    @contextmanager
    def _part(self, name: str, title: str) -> Iterator[Progress]:
        began = time.perf_counter()
        with self.session.stage(f"{self.one.problem.title}: {title}") as progress:
            yield progress
        self.seconds[name] += time.perf_counter() - began  # type: ignore[assignment]
