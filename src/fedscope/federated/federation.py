"""What a run is made of before it starts: network, data, who holds which rows, and the method."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn

from fedscope.checkpoints.files import versions
from fedscope.checkpoints.registry import Registry, Run
from fedscope.checkpoints.schema import CheckpointInfo, DataSpec, Manifest, ModelSpec, Settings
from fedscope.checkpoints.schema import parse as parse_record
from fedscope.data import catalogue as data_catalogue
from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Dataset, Split, part
from fedscope.data.partition import partition
from fedscope.errors import UserError
from fedscope.federated.flat import FlatModel
from fedscope.federated.method import Method
from fedscope.federated.methods import parse
from fedscope.federated.options import Values, Weights
from fedscope.federated.sampling import sample_clients
from fedscope.federated.tasks import LocalSettings
from fedscope.models import catalogue as model_catalogue
from fedscope.streams import numpy_stream, torch_stream


@dataclass(frozen=True)
class Federation:
    """Everything a run needs in memory."""

    settings: Settings
    model: nn.Module
    spec: ModelSpec
    dataset: Dataset
    pipeline: Pipeline
    rows: list[Tensor]  # per client (n_k,) int64
    method: Method

    @property
    def weights(self) -> Weights:
        """How the uploads are weighted: as set, else as the method has it, else by n_k."""
        return self.settings.weights or self.method.weights or "n_k"

    def weight(self, client: int) -> int:
        """Return p_k before it is divided by the sum over the participants."""
        samples = len(self.rows[client])
        if self.weights == "n_used":
            return local_settings(self.settings, self.weights).used(samples)
        return 1 if self.weights == "uniform" else samples

    def own_start(self, client: int) -> Tensor | None:
        """Return the random model (P+Q,) at which the client's memory begins, if its method asks for one."""
        if not (self.method.own_start and self.method.own_start(self.settings.options)):
            return None
        generator = torch_stream(self.settings.seed, "own start", 0, client)
        return FlatModel(model_catalogue.build(**self.spec.model_dump(), generator=generator)).values[0]

    def describe(self, name: str) -> Manifest:
        """Return the manifest of a run ``name`` that starts now."""
        return Manifest(
            name=name,
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            settings=self.settings,
            model=self.spec,
            data=self._data(),
            versions=versions(),
        )

    def info(
        self, run: str, round: int, metrics: dict[str, float | None], client: int | None = None
    ) -> CheckpointInfo:
        """Return the description of a checkpoint after ``round`` rounds: global, or a client's upload."""
        return CheckpointInfo(
            run=run,
            kind="global" if client is None else "client",
            round=round,
            client=client,
            samples=sum(map(len, self.rows)) if client is None else len(self.rows[client]),
            metrics=metrics,
            settings=self.settings,
            model=self.spec,
            data=self._data(),
            versions=versions(),
        )

    def _data(self) -> DataSpec:
        return DataSpec(
            name=self.dataset.name,
            augmentation=self.settings.augmentation or "none",
            fingerprint=self.dataset.fingerprint,
            train_samples=self.settings.train_samples or len(self.dataset.train),
            test_samples=len(self.dataset.test),
        )


def prepare(settings: Settings, given: dict[str, str], data_dir: Path | None = None) -> Federation:
    """Resolve names and defaults, load the data, divide it, and draw the initial weights.

    ``given`` are the method's options as the user typed them. The returned settings name everything.

    Raises:
        UserError: anything in the settings that the user can mend.
    """
    method = parse(settings.method)
    augmentation, pipeline = data_catalogue.pipeline(settings.dataset, settings.augmentation)
    device = torch.device(settings.device)
    dataset = data_catalogue.load(settings.dataset, data_dir)
    options = method.values(given, settings.reading)
    _agree(settings, method)
    spec, model = _network(settings, method, options, dataset)
    rows = _divide(settings, dataset)
    sample_clients(settings.sampling, settings.clients, settings.participation, settings.seed, 0)
    settings = settings.model_copy(
        update={
            "method": method.name,
            "options": options,
            "augmentation": augmentation,
            "model": spec.name,
            "alpha": None if settings.partition == "iid" else settings.alpha,
        }
    )
    test = dataset.test
    if settings.test_samples is not None:
        rows_used = part(test, settings.test_samples, settings.seed, "test")
        test = Split(test.images[rows_used], test.labels[rows_used])
    on_device = Dataset(
        dataset.name,
        dataset.classes,
        dataset.train.to(device),
        test.to(device),
        dataset.fingerprint,
        dataset.note,
    )
    return Federation(
        settings, model.to(device), spec, on_device, pipeline, [held.to(device) for held in rows], method
    )


def _agree(settings: Settings, method: Method) -> None:
    """Refuse settings under which the method would be another one, or nothing at all.

    Raises:
        UserError: there is such a setting.
    """
    for name, (value, why) in method.only.items():
        if getattr(settings, name) not in (None, value):
            raise UserError(f"{method.name} is trained with --{name.replace('_', '-')} {value}: {why}")
    if settings.stack > 1 and method.trains_alone:
        raise UserError(f"{method.name} trains its clients one by one; leave --stack out")
    if settings.compile and method.strategy:
        raise UserError(f"{method.name} runs another network in every step; leave --compile out")


def _network(
    settings: Settings, method: Method, options: Values, dataset: Dataset
) -> tuple[ModelSpec, nn.Module]:
    """Return the network that the method trains on this data, with its initial weights.

    Raises:
        UserError: the network does not exist, or does not fit the data or the method.
    """
    name = settings.model or model_catalogue.default(settings.dataset)
    network = model_catalogue.find(name)
    channels, side = dataset.train.images.shape[1:3]
    if not network.takes(side):
        raise UserError(
            f"model {name} takes {network.sides}, {settings.dataset} has {side}; choose another --model"
        )
    needs = {key: value for need in method.needs for key, value in need(options).items()}
    if settings.head is not None:
        needs["head"] = settings.head
    elif needs.get("head") and not network.residual:
        raise UserError(
            f"{method.name} trains a network with a projection head, which {name} cannot have; choose "
            "a residual network with --model, or --head false to use what the classifier reads"
        )
    known = {
        "name": name,
        "classes": len(dataset.classes),
        "channels": channels,
        "shortcut": settings.shortcut,
    }
    spec = parse_record(ModelSpec, known | needs, "model")
    model = model_catalogue.build(
        **spec.model_dump(), generator=torch_stream(settings.seed, "initialisation")
    )
    for check in method.checks:
        check(model, options)
    return spec, model


def open_run(federation: Federation, registry: Registry, name: str, *, resume: bool) -> Run:
    """Register a new run, or with ``resume`` return the one of that name.

    Raises:
        UserError: the name is taken, or the run to resume is not there or has other settings.
    """
    manifest = federation.describe(name)
    if not resume:
        return registry.create(manifest)
    run = registry.run(name)
    old = run.manifest()
    for section in ("settings", "model", "data"):
        before, now = getattr(old, section).model_dump(), getattr(manifest, section).model_dump()
        changed = [f"{key} {before[key]} → {now[key]}" for key in now if before[key] != now[key]]
        if changed:
            raise UserError(
                f"cannot resume {name!r} with other {section}: {'; '.join(changed)}; use another --name"
            )
    return run


def _divide(settings: Settings, dataset: Dataset) -> list[Tensor]:
    """Return each client's rows of the training split, or of the part of it that is used."""
    used = part(dataset.train, settings.train_samples, settings.seed, "train")
    parts = partition(
        settings.partition,
        dataset.train.labels[used].numpy(),
        settings.clients,
        settings.alpha,
        numpy_stream(settings.seed, "partition"),
    )
    return [used[torch.from_numpy(rows)] for rows in parts]


def local_settings(settings: Settings, weights: Weights) -> LocalSettings:
    """Return what the local loop needs of the settings."""
    return LocalSettings(
        settings.epochs, settings.batch_size, settings.momentum, settings.nesterov, settings.weight_decay,
        settings.clip, settings.precision, settings.compile, settings.drop_last, weights,
        settings.optimizer_state,
    )  # fmt: skip
