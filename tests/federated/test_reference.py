"""The trainer's rounds against the oracle, method by method and option by option.

Both sides compute in float64, where a wrong term, sign or order cannot hide behind rounding: they agree to
the last digits. Only the vectors that the trainer's clients keep in float32 files leave a trace. Pick rows
by hand, for instance with ``-k "feddc or scaffold"``.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.augment import Pipeline, Store
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.streams import torch_stream
from tests.federated import reference
from tests.federated.equations import Vector
from tests.federated.reference import Toy

# Seed and batch size are chosen such that the clients' 44, 36 and 40 rows make 3, 2 and 2 steps an epoch, and
# of the participants [1, 2], [0, 2], [0, 1] client 0 comes late and client 1 comes back.
COMMON = Settings(
    seed=28, model="mlp_digits", clients=3, participation=0.7, rounds=3, epochs=2, batch_size=20, lr=0.05,
    lr_decay=0.9, weight_decay=0.01, train_samples=120, test_samples=10, keep_every=1, save_clients="none",
)  # fmt: skip
PAIR = {"clients": 2, "participation": 1.0}  # everybody takes part in every round
CLIP = {"clip": 1.0}
MOMENTUM = {"momentum": 0.9}
NESTEROV = {"momentum": 0.9, "nesterov": True}
HEADLESS: dict[str, float] = {"head": False}  # the perceptron has no projection head
BATCHNORM = {"model": "resnet_digits", "train_samples": 70, "epochs": 1}
# Their clients keep vectors in float32 from round to round, which the oracle keeps in float64; it does
# round MOON's previous networks and FedBN's own BatchNorm as the trainer does.
KEPT_IN_FILES = ("feddyn", "feddc", "fedspeed", "scaffold", "fedcurv")


@dataclass(frozen=True)
class Row:
    """One comparison: a method, its options as typed, and what differs from ``COMMON``."""

    method: str
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"{name}={value}" for name, value in {**self.options, **self.settings}.items()]
        return ",".join([self.method, *said])


# Strengths are raised over their defaults so that a term is seen.
DYN, DC, BN_PAIR = {"dyn.alpha": "0.3"}, {"dc.alpha": "0.3"}, BATCHNORM | PAIR
ROWS = [
    Row("fedavg"),
    Row("fedavg", settings=PAIR | CLIP | NESTEROV),
    Row("fedavg", settings=BATCHNORM | MOMENTUM),
    Row("fedprox", {"prox.mu": "1"}, CLIP | MOMENTUM),
    Row("fedprox", {"prox.mu": "1", "prox.form": "norm"}, PAIR),
    Row("fedprox", {"prox.mu": "1", "prox.skip": "first_batch_of_epoch"}, CLIP),
    Row("fedprox", {"prox.mu": "1", "prox.split": "weight_decay"}, CLIP),
    Row("fedprox", {"prox.mu": "1", "prox.split": "weight_decay", "prox.skip": "first_batch_of_epoch"}, CLIP),
    Row("man", settings=CLIP),
    Row("man", {"man.half": "true", "man.zeta": "0.5"}, PAIR),
    Row("man", {"man.include_logits": "true"}, BATCHNORM),
    Row("fedprox+man", {"prox.mu": "1"}, CLIP | MOMENTUM),
    Row("moon", {"moon.mu": "5"}, HEADLESS),
    Row("moon", {"moon.mu": "5"}, BATCHNORM),
    Row("moon", {"moon.mu": "5", "moon.aux_mode": "train", "moon.tau": "0.2"}, BN_PAIR),
    Row("moon", {"moon.mu": "5", "moon.first": "skip"}, HEADLESS | CLIP | MOMENTUM),
    Row("moon", {"moon.mu": "5", "moon.first": "received", "moon.aux_mode": "train"}, BATCHNORM),
    Row("moon+man", {"moon.mu": "5"}, HEADLESS),
    Row("moon+fedprox", {"moon.mu": "5", "prox.mu": "1"}, HEADLESS | CLIP),
    Row("fedsam", {"sam.rho": "0.2"}, CLIP | MOMENTUM),
    Row("fedsam", {"sam.rho": "0.2"}, BATCHNORM),
    Row("fedsam", {"sam.rho": "0.2", "sam.bn": "first"}, BN_PAIR),
    Row("fedsam+man", {"sam.rho": "0.2"}, CLIP),
    Row("fedsam+fedprox", {"sam.rho": "0.2", "prox.mu": "1"}, CLIP),
    Row("fedasam"),
    Row("fedasam", {"asam.scaled": "all"}, BATCHNORM),
    Row("fedasam", {"asam.scaled": "ndim>1", "sam.bn": "first"}, BN_PAIR),
    Row("fedasam", {"asam.offset": "0", "asam.rho": "0.3"}, PAIR | CLIP),
    Row("fedasam+man", settings=CLIP),
    Row("scaffold+fedsam", {"sam.rho": "0.2"}, CLIP),  # FedGAMMA
    Row("scaffold+fedsam", {"sam.rho": "0.2", "cv.steps": "nominal", "cv.lr": "initial"}, BATCHNORM),
    Row("scaffold+fedasam", settings=CLIP),
    Row("feddc+fedsam", {"dc.alpha": "0.3", "sam.rho": "0.2"}, CLIP),
    Row("feddyn+fedsam+man", {"dyn.alpha": "0.3", "sam.rho": "0.2"}, CLIP),
    Row("feddyn", DYN, CLIP),
    Row("feddyn", DYN, PAIR | MOMENTUM),
    Row("feddyn", DYN, BATCHNORM),
    Row("feddyn", {**DYN, "dyn.quadratic": "loss"}, CLIP),
    Row("feddyn+man", DYN, PAIR | CLIP),
    Row("feddyn+fedprox", {**DYN, "prox.mu": "1"}, CLIP),
    Row("feddc", DC),
    Row("feddc", DC, PAIR | CLIP),
    Row("feddc", DC, BATCHNORM),
    Row("feddc", {**DC, "cv.lr": "initial"}),
    Row("feddc", {**DC, "cv.steps": "nominal"}),
    Row("feddc", DC, MOMENTUM),
    Row("feddc+man", DC, CLIP),
    Row("fedspeed", {**DYN, "speed.rho": "0.2"}, CLIP),
    Row("fedspeed", {**DYN, "speed.rho": "0.2"}, BN_PAIR),
    Row("fedspeed", {**DYN, "speed.rho": "0.2", "dyn.quadratic": "loss"}, CLIP),
    Row("fedspeed", {**DYN, "speed.rho": "0.2", "speed.server": "active"}),
    Row("fedspeed", {**DYN, "speed.rho": "0.2", "speed.stale_ascent": "true"}, CLIP),
    Row("fedspeed+man", {**DYN, "speed.rho": "0.2"}, CLIP),
    Row("scaffold"),
    Row("scaffold", settings=PAIR | CLIP),
    Row("scaffold", settings=BATCHNORM),
    Row("scaffold", {"scaffold.gamma": "0.7"}),
    Row("scaffold", {"scaffold.apply": "after_step"}, CLIP | MOMENTUM),
    Row("scaffold", {"scaffold.option": "I"}, CLIP),
    Row("scaffold", {"scaffold.option": "I"}, BATCHNORM),
    Row("scaffold", {"cv.lr": "initial"}),
    Row("scaffold", {"cv.steps": "nominal"}),
    Row("scaffold", {"cv.steps": "nominal", "cv.lr": "initial"}, CLIP | PAIR),
    Row("scaffold", settings=NESTEROV),
    Row("scaffold+man"),
    Row("scaffold+fedprox", {"prox.mu": "1"}, CLIP),
    Row("fedcurv"),
    Row("fedcurv", settings=BN_PAIR),
    Row("fedcurv", {"fisher.batch": "true"}, PAIR | CLIP),
    Row("fedcurv", {"fedcurv.exclude_self": "false"}),
    Row("fedcurv", {"fedcurv.half": "true"}, MOMENTUM),
    Row("fedcurv+man", {"fedcurv.lambda": "3"}, PAIR),
    Row("fedbn", settings=BATCHNORM),
    Row("fedbn", settings=PAIR),
    Row("fedbn", {"fedbn.match": "name"}, BATCHNORM),
    Row("fedbn+fedprox", {"prox.mu": "1"}, BATCHNORM | CLIP),
    Row("fedbn+fedprox", {"prox.mu": "1", "fedbn.reg_scope": "all"}, BATCHNORM),
    Row("fedbn+feddyn", DYN, BATCHNORM),
    Row("fedbn+feddyn", {**DYN, "fedbn.reg_scope": "all"}, BN_PAIR),
    Row("fedbn+fedcurv", {"fisher.batch": "true"}, BATCHNORM),
    Row("fedbn+fedcurv", {"fedbn.reg_scope": "all", "fisher.batch": "true"}, BN_PAIR),
    Row("fedbn+fedfor", settings=BATCHNORM),
    Row("fedbn+man", settings=BN_PAIR),
    Row("fedfor"),
    Row("fedfor", settings=BATCHNORM),
    Row("fedfor", {"fedfor.grad_scale": "none", "fedfor.alpha": "2"}, PAIR),
    Row("fedfor", {"fedfor.positive_only": "false"}, CLIP),
    Row("fedfor", {"fedfor.grad_scale": "none", "fedfor.alpha": "2"}, CLIP),
    Row("fedfor", {"fedfor.reduce": "mean", "fedfor.alpha": "50"}),
    Row("fedfor+man"),
    Row("fedavgm"),
    Row("fedavgm", {"avgm.beta": "0.5", "avgm.gamma": "0.7"}, BN_PAIR),
    Row("fedavgm", {"avgm.dampened": "true"}, PAIR),
    Row("fedadagrad"),
    Row("fedadagrad", {"adagrad.beta1": "0.5", "adagrad.gamma": "0.1", "adagrad.eps": "0.1"}, BATCHNORM),
    Row("fedadagrad", {"adagrad.s0": "zero"}),
    Row("fedadam"),
    Row("fedadam", {"adam.s0": "zero"}, PAIR),
    Row("fedadam", {"adam.bias_correction": "true"}),
    Row("fedadam", {"adam.beta1": "0.5", "adam.beta2": "0.7", "adam.gamma": "0.1", "adam.eps": "0.1"}),
    Row("fedyogi"),
    Row("fedyogi", {"yogi.s0": "zero"}, PAIR),
    Row("fedyogi", {"yogi.beta1": "0.5", "yogi.beta2": "0.7", "yogi.gamma": "0.1", "yogi.eps": "0.1"}),
    Row("fednova"),
    Row("fednova", settings=BN_PAIR | MOMENTUM),
    Row("fednova", {"nova.gamma": "0.7"}, NESTEROV),
    Row("fednova+fedprox", {"prox.mu": "1"}, PAIR | CLIP),
    Row("fednova+fedprox", {"prox.mu": "1"}, MOMENTUM),
    Row("fedadam+fedprox", {"prox.mu": "1"}, CLIP),
    Row("fedyogi+moon", {"moon.mu": "5"}, HEADLESS),
    Row("fedavgm+fedsam", {"sam.rho": "0.2"}),
    Row("fedavgm+fedcurv"),
    Row("fedadagrad+fedfor+man"),
]  # fmt: skip


class DoublePipeline(Pipeline):
    """The same images in float64."""

    def test(self, store: Store, rows: Tensor | None = None) -> Tensor:
        return super().test(store, rows).double()


def both(row: Row, folder: Path, *, double: bool) -> list[tuple[Vector, Vector]]:
    """Return every round's global state: the trainer's, and the oracle's."""
    kept, toy, _ = trained_and_toy(row, folder, double=double)
    given = {name: parsed(text) for name, text in row.options.items()}
    return list(zip(kept, reference.run(row.method, toy, given), strict=True))


def trained_and_toy(
    row: Row, folder: Path, *, double: bool
) -> tuple[list[Vector], Toy, Mapping[str, reference.Value]]:
    """Return every round's global state as trained, what an oracle needs, and every option's value."""
    settings = COMMON.model_copy(update={"method": row.method, **row.settings})
    federation = prepare(settings, dict(row.options))
    training, rows = federation.dataset.train, federation.rows
    module = copy.deepcopy(federation.model)  # training changes the federation's
    clients = [(federation.pipeline.test(training.images, held), training.labels[held]) for held in rows]
    if double:
        pipeline = DoublePipeline(**vars(federation.pipeline))
        federation = replace(federation, model=federation.model.double(), pipeline=pipeline)
    run = open_run(federation, RunRegistry(folder), "run", resume=False)
    metrics = train(federation, run, lambda _: None)
    assert len(metrics) == settings.rounds

    def orders(round: int, client: int) -> list[Tensor]:
        own = torch_stream(settings.seed, "batch order", round + 1, client)
        return [torch.randperm(len(rows[client]), generator=own) for _ in range(2 * settings.epochs)]

    participants = [sampled for m in run.metrics() if isinstance(sampled := m.clients, list)]
    toy = Toy(
        module, clients, orders, participants,
        settings.epochs, settings.batch_size, settings.lr, settings.lr_decay, settings.momentum,
        settings.nesterov, settings.weight_decay, settings.clip, kept=torch.float32,
    )  # fmt: skip
    kept = [load_checkpoint(run.after_round(round)).state for round in range(1, settings.rounds + 1)]
    return kept, toy, federation.settings.options


def parsed(text: str) -> reference.Value:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def furthest(pairs: list[tuple[Vector, Vector]]) -> list[float]:
    """Return, per round, the largest absolute difference of any parameter or floating buffer."""
    return [max(float((ours[n].double() - exact[n]).abs().max()) for n in exact) for ours, exact in pairs]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_round_is_the_oracles(row: Row, tmp_path: Path) -> None:
    first, *later = furthest(both(row, tmp_path, double=True))
    remembers = any(part in row.method for part in KEPT_IN_FILES)
    assert first < 1e-12
    assert max(later) < (2e-8 if remembers else 1e-12)


@pytest.mark.parametrize("row", [Row("fedavg", settings=BATCHNORM), Row("feddyn", DYN, CLIP)], ids=str)
def test_in_single_precision_too(row: Row, tmp_path: Path) -> None:
    """The first round only: later, rounding sends some activation to the other side of its ReLU's kink."""
    assert furthest(both(row, tmp_path, double=False))[0] < 2e-6


def test_the_table_covers_what_it_says() -> None:
    """Unequal clients, steps and batches; every method; every option that the oracle knows."""
    for settings in ({}, PAIR, BATCHNORM, BN_PAIR):
        sizes = [len(rows) for rows in prepare(COMMON.model_copy(update=settings), {}).rows]
        assert len(set(sizes)) == len(sizes)
        assert len({-(-size // COMMON.batch_size) for size in sizes}) > 1
        assert any(size % COMMON.batch_size for size in sizes)
    assert {part for row in ROWS for part in row.method.split("+")} == set(reference.METHODS)
    assert {name for row in ROWS for name in row.options} == reference.DEFAULTS.keys()
