"""Each quantity of a request on one problem, by the library."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.sharpness.average_case import average_sharpness, low_pass_loss
from fedscope.landscape.sharpness.block_spectra import mean_spectral_distance
from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm
from fedscope.landscape.sharpness.pac_bayes import NoiseLevel, pac_bayes_sigma
from fedscope.landscape.sharpness.perturbed_loss import of_size
from fedscope.landscape.sharpness.relative_flatness import (
    check_rows,
    largest_relative_flatness,
    last_linear,
    relative_flatness,
)
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, Search, Vertices
from fedscope.landscape.sharpness.sharpness_result import Cost, Sharpness
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.layer_blocks import layer_patterns
from fedscope.landscape.spectral.slq_density import spectral_density
from fedscope.landscape.spectral.spectral_results import Eigenpairs
from fedscope.records.entries import Record
from fedscope.records.number_types import ends_or_null, or_null
from fedscope.streams import key, torch_stream
from fedscope.workflows.sharpness.sharpness_request import QUANTITIES, Family, SharpnessRequest
from fedscope.workflows.sources.problem import Problem

BLOCK_PROBES, BLOCK_STEPS = 4, 15


@dataclass(frozen=True)
class _LargestEigenvalue:
    """λ_max with intervals of its own: of the residual, and of the population without the samples' bias."""

    pairs: Eigenpairs
    stderr_draws: ClassVar[float] = 0.0  # nothing is drawn
    dof_draws: ClassVar[float] = math.inf
    draws: ClassVar[tuple[float, ...]] = ()

    @property
    def value(self) -> float:
        return float(self.pairs.values[0])

    @property
    def stderr_data(self) -> float:
        return float(self.pairs.stderr_data[0])

    @property
    def dof_data(self) -> float:
        return float(self.pairs.dof_data[0])

    @property
    def batches(self) -> tuple[float, ...]:
        return () if self.pairs.forms is None else tuple(self.pairs.forms[0].tolist())

    @property
    def cost(self) -> Cost:
        return Cost(products=self.pairs.matvecs)

    def interval(self) -> tuple[float, float]:
        residual = float(self.pairs.residuals[0])
        return self.value - residual, self.value + residual

    def population_interval(self) -> tuple[float, float]:
        return self.pairs.interval()


Found = Sharpness | NoiseLevel | _LargestEigenvalue


class Quantities:
    """The quantities of one problem; ``batches`` are its samples, as they tell errors."""

    def __init__(self, problem: Problem, batches: Batches, request: SharpnessRequest) -> None:
        self._problem, self._batches, self._request = problem, batches, request
        self._given = (problem.model, problem.loss_fn, batches)
        self._families: dict[Family, Callable[[str, Progress], Found]] = {
            "worst": self._worst,
            "average": self._average,
            "low_pass": self._low_pass,
            "pac_bayes": self._pac_bayes,
            "fisher_rao": self._fisher_rao,
            "relative_flatness": self._flatness,
            "curvature": self._curvature,
            "blocks": self._blocks,
        }

    def settings(self, name: str) -> dict[str, str | int | float | bool]:
        """Return what a quantity is measured with, beside the samples and the seed."""
        asked, quantity = self._request, QUANTITIES[name]
        found: dict[str, str | int | float | bool] = {"bn": asked.bn}
        if (rho := asked.radius(name)) is not None:
            found["rho"] = rho
        if quantity.family == "worst":
            found["m"] = asked.m
        if quantity.family == "worst" and name != "sam":
            found |= {"steps": asked.steps, "reading": asked.reading}
            if isinstance(self._search(name), Vertices):
                found["search"] = "vertices"
        if quantity.family in ("average", "low_pass", "pac_bayes"):
            found["pairs"] = asked.pairs
        if quantity.family in ("worst", "average"):
            found["normalize_logits"] = asked.normalize_logits
        if quantity.family == "pac_bayes":
            found["target"] = asked.target
        if quantity.family == "relative_flatness":
            found["layer"] = asked.layer or last_linear(self._problem.model)
        return found

    def entry(self, name: str, progress: Progress) -> Record:
        settings, start = self.settings(name), time.perf_counter()
        found = self._families[QUANTITIES[name].family](name, progress)
        return {
            "name": name,
            "settings": settings,
            "value": found.value,
            "stderr_draws": found.stderr_draws,
            "dof_draws": or_null(found.dof_draws),
            "stderr_data": found.stderr_data,
            "dof_data": or_null(found.dof_data),
            "interval": ends_or_null(found.interval()),
            "population_interval": ends_or_null(found.population_interval()),
            "draws": found.draws,
            "batches": found.batches,
            "batch_sizes": self._sizes(name, len(found.batches)),
            "forwards": found.cost.forwards,
            "gradients": found.cost.gradients,
            "products": found.cost.products,
            "seconds": time.perf_counter() - start,
        }

    def _sizes(self, name: str, count: int) -> tuple[int, ...]:
        if QUANTITIES[name].family == "worst":
            return of_size(self._batches, self._request.m, self._problem.source.seed).sizes
        return self._batches.sizes if count == len(self._batches) else ()

    def _seed(self, name: str) -> int:
        return key(self._problem.source.seed, f"sharpness {name}")

    def _hessian(self, parameters: Sequence[str] | None = None) -> Hessian:
        return Hessian(*self._given, bn=self._request.bn, parameters=parameters)

    def _worst(self, name: str, progress: Progress) -> Found:
        asked, quantity = self._request, QUANTITIES[name]
        return worst_case_sharpness(
            *self._given, rho=_radius(asked, name), p=quantity.p, adaptive=quantity.adaptive, m=asked.m,
            search=self._search(name), bn=asked.bn,
            normalize_logits=asked.normalize_logits, seed=self._problem.source.seed, progress=progress,
        )  # fmt: skip

    def _search(self, name: str) -> Search:
        asked = self._request
        if name == "sam":
            return OneStep()
        if QUANTITIES[name].p == math.inf and asked.reading == "paper":
            return Vertices(asked.steps, self._problem.source.seed)
        return AutoPGD(asked.steps, asked.reading)

    def _average(self, name: str, progress: Progress) -> Found:
        asked, quantity = self._request, QUANTITIES[name]
        return average_sharpness(
            *self._given, rho=_radius(asked, name), p=quantity.p, adaptive=quantity.adaptive,
            pairs=asked.pairs, bn=asked.bn, normalize_logits=asked.normalize_logits,
            seed=self._seed(name), progress=progress,
        )  # fmt: skip

    def _low_pass(self, name: str, progress: Progress) -> Found:
        asked = self._request
        return low_pass_loss(
            *self._given, sigma=_radius(asked, name), pairs=asked.pairs, bn=asked.bn, seed=self._seed(name),
            progress=progress,
        )  # fmt: skip

    def _pac_bayes(self, name: str, progress: Progress) -> Found:
        asked = self._request
        return pac_bayes_sigma(
            *self._given, target=asked.target, adaptive=QUANTITIES[name].adaptive,
            pairs=max(2, asked.pairs // 2), bn=asked.bn, seed=self._seed(name), progress=progress,
        )  # fmt: skip

    def _fisher_rao(self, name: str, progress: Progress) -> Found:
        return fisher_rao_norm(
            *self._given, labels="exact" if name == "fisher_rao" else "empirical", bn=self._request.bn,
            progress=progress,
        )  # fmt: skip

    def _flatness(self, name: str, progress: Progress) -> Found:
        op = self._hessian([self._request.layer or last_linear(self._problem.model)])
        check_rows(self._problem.model, op.names)
        if name == "relative_flatness":
            return relative_flatness(op, seed=self._seed(name), progress=progress)
        return largest_relative_flatness(op, seed=self._seed(name), progress=progress)

    def _curvature(self, name: str, progress: Progress) -> Found:
        op, seed = self._hessian(), self._seed(name)
        if name == "trace":
            found = trace(op, rtol=0.05, seed=seed, progress=progress)
            return Sharpness(
                found.value, found.stderr_probe, found.stderr_data, Cost(products=found.matvecs), seed,
                found.dof_probe, found.dof_data, found.samples, found.batches,
            )  # fmt: skip
        pairs = top_eigenpairs(op, seed=seed, progress=progress)
        return _LargestEigenvalue(pairs)

    def _blocks(self, name: str, progress: Progress) -> Found:
        layers, spent, densities = layer_patterns(self._hessian().names), 0, {}
        seed = self._seed(name)
        for layer in layers:
            draws = torch_stream(seed, layer)
            op = self._hessian([layer])
            densities[layer] = spectral_density(op, probes=BLOCK_PROBES, steps=BLOCK_STEPS, generator=draws)
            spent += densities[layer].matvecs
            progress(spent, None)
        found = mean_spectral_distance(densities)
        return Sharpness(found.value, found.stderr, math.nan, Cost(products=spent), seed, dof_draws=found.dof)


def _radius(request: SharpnessRequest, name: str) -> float:
    rho = request.radius(name)
    assert rho is not None
    return rho
