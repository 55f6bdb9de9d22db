"""The time that missing runs and results will take: from timed runs of this registry, else a guess.

Everything is counted in image passes, the forward and backward pass of one image; a product of the Hessian
counts as two of them, a loss as a third of one.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from statistics import fmean

from fedscope.checkpoints.file.settings import Settings
from fedscope.data.partition.draw_partition import FRESH
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.federated.methods import parse
from fedscope.federated.setup.local_work import mean_work
from fedscope.models import catalogue as model_catalogue
from fedscope.models.network_summary import summary
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.inventory import RunInventory

GUESS = {"fp32": 25e9, "bf16": 50e9}  # multiply-accumulates a second of one core: what a guess assumes
PRODUCT, LOSS = 2.0, 1 / 3  # of a pass forward and backward
SEARCH, TRACE, CLIENT, PUBLISHED = 40, 60, 48, 60  # products that an estimator typically takes
CELL, SHARPNESS = 45, 200  # products of one function at one point, and of the usual definitions of sharpness


@dataclass(frozen=True)
class CoreSeconds:
    """Seconds of one core, and their basis."""

    seconds: float
    basis: str  # measured, scaled, guess

    def __add__(self, other: "CoreSeconds") -> "CoreSeconds":
        """Add times; the basis is the weaker one."""
        order = ("measured", "scaled", "guess")
        return CoreSeconds(self.seconds + other.seconds, max(self.basis, other.basis, key=order.index))


NOTHING = CoreSeconds(0.0, "measured")


@dataclass
class MachineSpeed:
    """The speed of this machine, from the registry's runs."""

    inventory: RunInventory

    @cached_property
    def rates(self) -> dict[tuple[str, str, str], float]:
        """Seconds of a core per image pass, by network, precision and method, of runs on CPUs."""
        spent: dict[tuple[str, str, str], list[float]] = {}
        for entry in (entry for runs in self.inventory.runs.values() for entry in runs):
            own = entry.manifest.settings
            if own.device != "cpu":
                continue
            totals = spent.setdefault((str(own.model), own.precision, own.method), [0.0, 0.0])
            for m in entry.metrics:
                totals[0] += m.seconds * m.workers * own.threads
                totals[1] += m.gradients * own.batch_size
        return {key: seconds / passes for key, (seconds, passes) in spent.items() if passes}

    def training(self, settings: Settings, done: int = 0) -> CoreSeconds:
        passes = (
            (settings.rounds - done) * per_round(settings) * (2 if parse(settings.method).gradient_at else 1)
        )
        return self._time(settings, passes)

    def measuring(self, settings: Settings, wanted: Measure) -> CoreSeconds:
        """Return the time of a measure; never more than a guess, since the estimators decide when to stop."""
        held = settings.train_samples or data_catalogue.record(settings.dataset).expected["train"]
        samples = min(wanted.samples or held, held)
        products = 0.0
        if wanted.kind == "outcomes":
            images = data_catalogue.record(settings.dataset).expected["test"] * LOSS
        elif wanted.kind == "clients":
            own = min(wanted.samples or held, held // settings.clients)
            images = (3 * settings.clients + 1) * CELL * own * PRODUCT
        elif wanted.kind == "sharpness":
            images = SHARPNESS * samples * PRODUCT
        elif wanted.kind != "hessian":
            images = wanted.grid**2 * samples * LOSS + SEARCH * samples * PRODUCT
        elif wanted.reading == "code":
            products = (2 + settings.clients * wanted.clients) * PUBLISHED
            images = products * wanted.product_batches * settings.batch_size * PRODUCT
        else:
            products = SEARCH + 2 * wanted.top_k + (wanted.probes or TRACE) + 80 * 10 * wanted.density
            images = products * samples * PRODUCT
            own = min(wanted.samples or held, held // settings.clients)
            each = 1.5 * (wanted.client_probes or CLIENT)  # its basis' products among them
            images += wanted.clients * settings.clients * each * own * PRODUCT
        return CoreSeconds(self._time(settings, images).seconds, "guess")

    def _time(self, settings: Settings, passes: float) -> CoreSeconds:
        network, precision, method = str(settings.model), settings.precision, settings.method
        if (network, precision, method) in self.rates:
            return CoreSeconds(passes * self.rates[network, precision, method], "measured")
        alike = [rate for (own, kind, _), rate in self.rates.items() if (own, kind) == (network, precision)]
        if alike:
            return CoreSeconds(passes * min(alike), "scaled")
        per_image = 3 * _products(network, settings.dataset, settings.augmentation)
        return CoreSeconds(passes * per_image / GUESS[precision], "guess")


def per_round(settings: Settings) -> float:
    held = settings.train_samples or data_catalogue.record(settings.dataset).expected["train"]
    share = settings.participation
    if settings.partition in FRESH:
        share = settings.clients * (settings.phi or 1.0) * _tail(settings)
    if settings.local_steps:
        return settings.clients * settings.participation * mean_work(settings) * settings.batch_size
    return held * share * mean_work(settings)


def _tail(settings: Settings) -> float:
    """Return the share of a long-tailed draw that is kept: the mean of ρ^{r/(C−1)} over the ranks r."""
    classes = data_catalogue.record(settings.dataset).classes
    return fmean((settings.rho or 1.0) ** (rank / (classes - 1)) for rank in range(classes))


@cache
def _products(network: str, dataset: str, augmentation: str | None) -> int:
    known = data_catalogue.record(dataset)
    _, pipeline = data_catalogue.pipeline(dataset, augmentation)
    model = model_catalogue.outline(network, known.classes, known.channels)
    return summary(model, known.channels, pipeline.side or known.side).multiply_accumulates
