"""A federated run, round by round: sample, train locally, average, evaluate, keep.

Every draw comes from a stream keyed by (seed, purpose, round, client) and the built-in methods carry no state
between rounds, so an interrupted run continues from its last global model with the same bits.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn

from fedscope.checkpoints.files import load_checkpoint, save_checkpoint, versions
from fedscope.checkpoints.registry import Registry, Run
from fedscope.checkpoints.schema import CheckpointInfo, DataSpec, Manifest, ModelSpec, Settings
from fedscope.data import catalogue as data_catalogue
from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Dataset
from fedscope.data.partition import partition
from fedscope.errors import UserError
from fedscope.federated.evaluation import evaluate
from fedscope.federated.local import LocalSettings, LocalStreams, train_client
from fedscope.federated.method import Method
from fedscope.federated.methods import parse
from fedscope.federated.sampling import sample_clients
from fedscope.federated.server import WeightedMean
from fedscope.models import catalogue as model_catalogue
from fedscope.streams import numpy_stream, torch_stream

Metrics = dict[str, object]


@dataclass(frozen=True)
class Federation:
    """Everything a run needs in memory: network, data, who holds which rows, and the method."""

    settings: Settings
    model: nn.Module
    spec: ModelSpec
    dataset: Dataset
    pipeline: Pipeline
    rows: list[Tensor]  # per client (n_k,) int64
    method: Method


def prepare(settings: Settings, given: dict[str, str], data_dir: Path | None = None) -> Federation:
    """Resolve names and defaults, load the data, divide it, and draw the initial weights.

    ``given`` are the method's options as the user typed them. The returned settings name everything.

    Raises:
        UserError: anything in the settings that the user can mend.
    """
    method = parse(settings.method)
    augmentation, pipeline = data_catalogue.pipeline(settings.dataset, settings.augmentation)
    model_name = settings.model or model_catalogue.DEFAULTS[settings.dataset]
    device = torch.device(settings.device)
    dataset = data_catalogue.load(settings.dataset, data_dir)
    channels, side = dataset.train.images.shape[1:3]
    if model_catalogue.INPUT_SIDES.get(model_name, side) != side:
        raise UserError(
            f"model {model_name} takes {model_catalogue.INPUT_SIDES[model_name]}-pixel images, "
            f"{settings.dataset} has {side}; choose another --model"
        )
    spec = ModelSpec(name=model_name, classes=len(dataset.classes), channels=channels)
    model = model_catalogue.build(
        **spec.model_dump(), generator=torch_stream(settings.seed, "initialisation")
    )
    parts = partition(
        settings.partition,
        dataset.train.labels.numpy(),
        settings.clients,
        settings.alpha,
        numpy_stream(settings.seed, "partition"),
    )
    sample_clients(settings.sampling, settings.clients, settings.participation, settings.seed, 0)
    settings = settings.model_copy(
        update={
            "method": method.name,
            "options": method.values(given, settings.reading),
            "augmentation": augmentation,
            "model": model_name,
            "alpha": None if settings.partition == "iid" else settings.alpha,
        }
    )
    on_device = Dataset(
        dataset.name,
        dataset.classes,
        dataset.train.to(device),
        dataset.test.to(device),
        dataset.fingerprint,
        dataset.note,
    )
    rows = [torch.from_numpy(part).to(device) for part in parts]
    return Federation(settings, model.to(device), spec, on_device, pipeline, rows, method)


def open_run(federation: Federation, registry: Registry, name: str, *, resume: bool) -> Run:
    """Register a new run, or with ``resume`` return the one of that name.

    Raises:
        UserError: the name is taken, or the run to resume is not there or has other settings.
    """
    manifest = _manifest(federation, name)
    if not resume:
        return registry.create(manifest)
    run = registry.run(name)
    old = run.manifest()
    for part in ("settings", "model", "data"):
        before, now = getattr(old, part).model_dump(), getattr(manifest, part).model_dump()
        changed = [f"{key} {before[key]} → {now[key]}" for key in now if before[key] != now[key]]
        if changed:
            raise UserError(
                f"cannot resume {name!r} with other {part}: {'; '.join(changed)}; use another --name"
            )
    return run


def train(federation: Federation, run: Run, report: Callable[[Metrics], None]) -> list[Metrics]:
    """Run the rounds that are left, calling ``report`` with each round's metrics; return all metrics."""
    settings, model = federation.settings, federation.model
    metrics, best = _continue(federation, run)
    for round in range(len(metrics) + 1, settings.rounds + 1):
        start = time.perf_counter()
        sampled = sample_clients(
            settings.sampling, settings.clients, settings.participation, settings.seed, round - 1
        )
        train_loss = _train_round(federation, run, round, sampled)
        loss, accuracy = evaluate(model, federation.dataset.test, federation.pipeline)
        record: Metrics = {
            "round": round,
            "accuracy": accuracy,
            "loss": _finite(loss),
            "train_loss": _finite(train_loss),
            "lr": _lr(settings, round),
            "clients": sampled,
            "seconds": time.perf_counter() - start,
        }
        info = _info(federation, run, round, {"accuracy": accuracy, "loss": _finite(loss)})
        state = model.state_dict()
        if accuracy > best:
            best = accuracy
            save_checkpoint(run.best, state, info)
        if settings.keep_every and round % settings.keep_every == 0:
            save_checkpoint(run.kept(round), state, info)
        run.append_metrics(record)  # before the weights: resuming drops a record that is ahead of them
        save_checkpoint(run.last, state, info)
        metrics.append(record)
        report(record)
    if run.last.exists():
        run.last.replace(run.final)
    return metrics


def _train_round(federation: Federation, run: Run, round: int, sampled: list[int]) -> float:
    """Train the sampled clients one after the other and leave their weighted mean in the model.

    Returns the clients' training loss, weighted alike: cross-entropy alone, over their last local epoch.
    """
    settings, model = federation.settings, federation.model
    broadcast = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    total = sum(len(federation.rows[client]) for client in sampled)
    local = LocalSettings(
        settings.epochs,
        settings.batch_size,
        _lr(settings, round),
        settings.momentum,
        settings.nesterov,
        settings.weight_decay,
        settings.clip,
    )
    mean, train_loss = WeightedMean(), 0.0
    for client in sampled:
        model.load_state_dict(broadcast)
        rows = federation.rows[client]
        streams = LocalStreams(
            torch_stream(settings.seed, "batch order", round, client),
            torch_stream(settings.seed, "augmentation", round, client),
        )
        loss = train_client(
            model,
            federation.dataset.train,
            rows,
            federation.pipeline,
            federation.method,
            settings.options,
            local,
            streams,
        )
        train_loss += loss * len(rows) / total
        state = model.state_dict()
        mean.add(state, len(rows) / total)
        if settings.save_clients != "none":
            info = _info(federation, run, round, {"train_loss": _finite(loss)}, client)
            save_checkpoint(run.client(client), state, info)
            if settings.save_clients == "all":
                save_checkpoint(run.client(client, round), state, info)
    mean.load_into(model)
    return train_loss


def _continue(federation: Federation, run: Run) -> tuple[list[Metrics], float]:
    """Load the newest global model of ``run``; return the metrics up to it and the best accuracy."""
    newest = run.final if run.final.exists() else run.last
    if not newest.exists():
        run.write_metrics([])
        return [], -1.0
    checkpoint = load_checkpoint(newest)
    federation.model.load_state_dict(checkpoint.state)
    metrics = run.metrics()[: checkpoint.info.round]
    if [m.get("round") for m in metrics] != list(range(1, checkpoint.info.round + 1)):
        raise UserError(
            f"cannot resume {run.name!r}: its weights are of round {checkpoint.info.round}, which its "
            "metrics do not reach; train it anew under another --name"
        )
    run.write_metrics(metrics)
    return metrics, max(float(str(m["accuracy"])) for m in metrics)


def _manifest(federation: Federation, name: str) -> Manifest:
    return Manifest(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        settings=federation.settings,
        model=federation.spec,
        data=_data_spec(federation),
        versions=versions(),
    )


def _info(
    federation: Federation, run: Run, round: int, metrics: dict[str, float | None], client: int | None = None
) -> CheckpointInfo:
    return CheckpointInfo(
        run=run.name,
        kind="global" if client is None else "client",
        round=round,
        client=client,
        samples=len(federation.dataset.train if client is None else federation.rows[client]),
        metrics=metrics,
        settings=federation.settings,
        model=federation.spec,
        data=_data_spec(federation),
        versions=versions(),
    )


def _data_spec(federation: Federation) -> DataSpec:
    dataset, settings = federation.dataset, federation.settings
    return DataSpec(
        name=dataset.name,
        augmentation=settings.augmentation or "none",
        fingerprint=dataset.fingerprint,
        train_samples=len(dataset.train),
        test_samples=len(dataset.test),
    )


def _lr(settings: Settings, round: int) -> float:
    return settings.lr * settings.lr_decay ** (round - 1)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
