"""A run before it starts: network, data, the clients' rows, and the method."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.file.schema import (
    CheckpointInfo,
    DataSpec,
    Manifest,
    MethodCode,
    ModelSpec,
    PresetUse,
    RowsSpec,
)
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.client_rows import ClientRows, packed
from fedscope.checkpoints.registry.method_code import method_code
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Dataset, Split
from fedscope.data.partition.draw_partition import FRESH
from fedscope.data.partition.shift import shift_rounds
from fedscope.data.reading.anew import Anew
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.data.sets.own_data import source_of
from fedscope.federated.methods import foreign, parse
from fedscope.federated.record.checked import checked
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Weights
from fedscope.federated.record.tasks import LocalSettings
from fedscope.federated.setup.compatibility import check_batches, check_loss
from fedscope.federated.setup.continuation import check_continues
from fedscope.federated.setup.resolved_settings import label_maps, settled
from fedscope.federated.setup.run_samples import client_rows, evaluated
from fedscope.federated.setup.stacking import automatic_stack
from fedscope.federated.setup.trained_network import can_be_stacked, network, rebuilt
from fedscope.own import digest
from fedscope.process import is_little, take_one_thread
from fedscope.streams import torch_stream


@dataclass(frozen=True)
class Federation:
    """The parts of a run in memory."""

    settings: Settings
    model: nn.Module
    spec: ModelSpec
    dataset: Dataset
    pipeline: Pipeline
    rows: list[Tensor]  # per client (n_k,) int64, in the first round
    method: Method
    label_maps: Tensor | None = None  # (T, C) int64: what each class is labelled in each round
    held_out: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # rows to validate on
    codes: tuple[MethodCode, ...] = ()  # of methods of other packages

    @property
    def tracked(self) -> tuple[str, ...]:
        """The global models that are evaluated: the server's ``cld``, and means of clients beside it."""
        return ("cld",) if self.settings.eval_model == "cld" else ("cld", "sel", "all")

    @property
    def new_clients(self) -> bool:
        """Whether every round's clients are new ones."""
        return self.settings.partition in FRESH

    @property
    def training(self) -> Split:
        """The training split for the local loop; under concept shift with labels of its own to overwrite."""
        split = self.dataset.train
        return split if self.label_maps is None else replace(split, labels=split.labels.clone())

    @property
    def remembers(self) -> bool:
        settings, method = self.settings, self.method
        moments = settings.momentum or settings.optimizer != "sgd"
        optimizer = moments and settings.optimizer_state == "client"
        return bool(method.memory or method.kept_vectors or optimizer)

    def shifted(self, round: int) -> bool:
        return self.label_maps is not None and round - 1 in shift_rounds(self.label_maps.cpu().numpy())

    @property
    def validation(self) -> Split | None:
        return self.dataset.train.take(self.held_out) if len(self.held_out) else None

    def stored(self, rows: Sequence[Tensor]) -> ClientRows:
        return ClientRows.from_tensors(rows, self.held_out)

    def labels(self, round: int) -> tuple[int, ...]:
        """Return the label of each class after ``round`` rounds under concept shift; else nothing."""
        return () if self.label_maps is None else tuple(self.label_maps[max(1, round) - 1].tolist())

    def rows_in(self, round: int) -> list[Tensor]:
        if not self.new_clients or round == 1:
            return self.rows
        device = self.settings.device
        rows = [held.to(device) for held in client_rows(self.settings, self.dataset, round=round)[0]]
        check_batches(self.model, self.method, self.settings, rows, self.dataset.train, self.pipeline)
        return rows

    @property
    def weights(self) -> Weights:
        return self.settings.weights or self.method.weights or "n_k"

    def weight(self, samples: int) -> int:
        return local_settings(self.settings, self.weights).weight(samples)

    def own_start(self, client: int) -> Tensor | None:
        """Return the client's own random model (P+Q,) before its first round, if its method asks for one."""
        if not (self.method.random_start and self.method.random_start(self.settings.options)):
            return None
        generator = torch_stream(self.settings.seed, "own start", 0, client)
        model = rebuilt(self.spec, generator)
        return FlatModel(model, channels_last=not self.spec.own).values[0]

    def describe(self, name: str, preset: PresetUse | None = None) -> Manifest:
        return Manifest(
            name=name,
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            settings=self.settings,
            model=self.spec,
            data=self._data(),
            versions=versions(),
            rows=None if self.new_clients else self.stored(self.rows).spec,
            preset=preset,
            methods=self.codes,
            sends=self.method.sends_another,
            remembers=self.remembers,
        )

    def info(
        self,
        run: str,
        round: int,
        metrics: dict[str, float | None],
        rows: RowsSpec,
        client: int | None = None,
    ) -> CheckpointInfo:
        return CheckpointInfo(
            run=run,
            kind="global" if client is None else "client",
            round=round,
            client=client,
            samples=sum(rows.counts) if client is None else rows.counts[client],
            metrics=metrics,
            settings=self.settings,
            model=self.spec,
            data=self._data(),
            versions=versions(),
            labels=self.labels(round),
            rows=rows.sha256,
        )

    def _data(self) -> DataSpec:
        return DataSpec(
            name=self.dataset.name,
            augmentation=self.settings.augmentation or "none",
            fingerprint=self.dataset.fingerprint,
            train_samples=self.settings.train_samples or len(self.dataset.train),
            test_samples=len(self.dataset.test),
            source=source_of(self.settings.dataset, self.settings.test_data),
            loss_source=digest(self.settings.loss) if self.settings.loss else "",
        )


def prepare(
    settings: Settings,
    given: dict[str, str],
    data_dir: Path | None = None,
    run: RunFolder | None = None,
    *,
    choose_stack: bool = False,
    choose_threads: bool = False,
) -> Federation:
    """Resolve names and defaults, load the data, divide it, and draw the initial weights.

    ``given`` are the method's options as the user typed them. The returned settings name everything. The
    clients hold the rows that ``run``, which is to be continued, has stored. With ``choose_stack`` the size
    of the stacks is not that of ``settings`` but follows from all else (``--stack auto``); with
    ``choose_threads`` a step that is little work is made by one thread.
    """
    settings = settled(settings, given)  # before the data, which may take long to load
    method, device = checked(parse(settings.method)), torch.device(settings.device)
    _, pipeline = data_catalogue.pipeline(settings.dataset, settings.augmentation)
    dataset = data_catalogue.load(
        settings.dataset, data_dir, settings.test_data, settings.model, settings.loss
    )
    pipeline = replace(pipeline, anew=isinstance(dataset.train.images, Anew))
    check_loss(settings, dataset)
    spec, model = network(settings, method, dataset, pipeline.side)
    clients, held_out = client_rows(settings, dataset, run)
    rows = [held.to(device) for held in clients]
    check_batches(model, method, settings, rows, dataset.train, pipeline)
    if choose_stack:
        # the rule counts a network's own layers, and beside adapters the base is the most of a step
        stack = 1 if spec.lora else automatic_stack(settings, method, model, rows)
        if stack > 1 and not can_be_stacked(settings, model, dataset):
            stack = 1
        settings = settings.model_copy(update={"stack": stack})
    if choose_threads and device.type == "cpu":
        sample = pipeline.test(dataset.train.images, torch.zeros(1, dtype=torch.int64))[0]
        batch = settings.stack * min(settings.batch_size, max(map(len, rows)))
        if is_little(sum(p.numel() for p in model.parameters()), batch, sample):
            settings = settings.model_copy(update={"threads": 1})
            take_one_thread()
    used = replace(dataset, train=dataset.train.to(device), test=evaluated(settings, dataset).to(device))
    maps = label_maps(settings, len(dataset.classes))
    return Federation(
        settings, model.to(device), spec, used, pipeline, rows, method, maps, held_out.to(device),
        tuple(filter(None, map(method_code, foreign(settings.method)))),
    )  # fmt: skip


def open_run(
    federation: Federation,
    registry: RunRegistry,
    name: str,
    *,
    resume: bool,
    preset: PresetUse | None = None,
) -> RunFolder:
    manifest = federation.describe(name, preset)
    if not resume:
        return registry.create(
            manifest, None if federation.new_clients else packed(federation.stored(federation.rows))
        )
    run = registry.run(name)
    check_continues(run.manifest(), manifest)
    return run


def local_settings(settings: Settings, weights: Weights) -> LocalSettings:
    return LocalSettings(
        settings.epochs, settings.batch_size, settings.momentum, settings.nesterov, settings.weight_decay,
        settings.clip, settings.precision, settings.compile, settings.drop_last, weights,
        settings.optimizer_state, settings.steps_limit, settings.local_steps, settings.optimizer,
        settings.adam_beta1, settings.adam_beta2, settings.adam_eps,
    )  # fmt: skip
