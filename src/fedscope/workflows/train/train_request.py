"""What to train: as a user asks for it, as a run is planned, and what came of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedscope.checkpoints.file.fields import OPTION, parse
from fedscope.checkpoints.file.schema import PresetUse
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.method_code import method_note
from fedscope.checkpoints.registry.owned import data_note, network_note
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.federated.setup.paper_presets import preset as find_preset
from fedscope.federated.setup.resolved_settings import with_own_division
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.unused import check_settings

AUTO = "auto"  # of a new run's stack: as if it were not named


@dataclass(frozen=True)
class TrainRequest:
    """A run to train or to continue, or one run for each of several seeds."""

    registry: Path
    settings: Mapping[str, object] = field(default_factory=dict)  # fields of Settings that the user has set
    options: Mapping[str, str] = field(default_factory=dict)  # of the method, as text
    preset: str | None = None  # what the settings start from
    name: str | None = None  # None: ``stem``, with a number where it is taken
    stem: str | None = None  # None: METHOD-DATASET
    seeds: tuple[int, ...] | None = None  # a run NAME-sSEED each
    resume: bool = False
    data_dir: Path | None = None
    device: str = "auto"
    threads: int | None = None  # of each worker; None: the cores divided by the workers, or as before
    workers: int = 1
    loggers: tuple[str, ...] = ()  # names of `fedscope.loggers.logger`, that get the metrics too
    named: Mapping[str, str] = field(default_factory=dict)  # settings that must have an effect → their flags


@dataclass(frozen=True)
class RunPlan:
    """One run of a request, with every setting known."""

    request: TrainRequest
    settings: Settings
    options: Mapping[str, str]  # of the method, as text; those not named here have their defaults
    preset: PresetUse | None = None
    suffixes: tuple[str, ...] = ("",)  # without a name: the first ends it, and it is free with all of them
    until: int | None = None  # the round to stop at; None: the last
    choose_stack: bool = False  # whether the size of the stacks follows from all else, ``--stack auto``
    choose_threads: bool = False  # whether the number of threads does


@dataclass(frozen=True)
class TrainedRun:
    """A run that ended, in the numbers that ``fedscope train --json`` prints; accuracies are shares."""

    run: str
    registry: str
    state: str  # finished, or diverged
    seed: int
    lr: float
    final: str  # the checkpoint of the last round
    best: str
    accuracy: float | None
    best_accuracy: float | None
    best_half_accuracy: float | None
    chosen_on: str
    rounds: int
    target: float | None = None
    rounds_to_target: int | None = None
    shift_accuracy: float | None = None
    loss: float | None = None

    @property
    def diverged(self) -> bool:
        return self.state == "diverged"

    @property
    def reached(self) -> str:
        """The rounds to the target as the papers print them, ``500+`` where it was not reached."""
        return f"{self.rounds}+" if self.rounds_to_target is None else str(self.rounds_to_target)

    def entry(self) -> dict[str, Any]:
        """Return the JSON record; the loss stands where there is no accuracy."""
        absent = [name for name in ("target", "shift_accuracy") if getattr(self, name) is None]
        absent += ["loss"] if self.accuracy is not None else []
        absent += ["rounds_to_target"] if self.target is None else []
        return {name: value for name, value in asdict(self).items() if name not in absent}


def plan(
    request: TrainRequest,
    device: str,
    threads: int,
    *,
    like: str | None = None,
    reporter: Reporter = SILENT,
) -> RunPlan:
    """Return the run that a request without ``seeds`` asks for, with the settings of the run ``like``."""
    named = {key: value for key, value in request.settings.items() if (key, value) != ("stack", AUTO)}
    request = replace(request, settings=named)
    fields, options, use = dict(request.settings), dict(request.options), None
    if request.resume or like:
        name = request.name if request.resume else like
        fields, options, use = _as_before(replace(request, name=name), reporter)
    elif request.preset is not None:
        fields, options, use = find_preset(request.preset).resolve(fields, options)
    if not (request.resume or like):
        fields = with_own_division(fields)
    settings = parse(Settings, {**fields, "device": device, "threads": threads}, OPTION)
    check_settings(settings, request.named)
    free = request.threads is None and request.workers == 1 and not request.resume
    return RunPlan(request, settings, options, use, choose_stack="stack" not in fields, choose_threads=free)


def _as_before(
    request: TrainRequest, reporter: Reporter
) -> tuple[dict[str, object], dict[str, str], PresetUse | None]:
    name, fields = request.name, request.settings
    if name is None:
        raise UserError("--resume needs the --name of the run to continue")
    manifest = RunRegistry(request.registry).run(name).manifest()
    before = manifest.preset.name if manifest.preset else None
    if request.preset not in (None, before):
        raise UserError(f"{name} was started {f'with --preset {before}' if before else 'without a preset'}")
    named = tuple(str(fields.get(name)) for name in ("model", "dataset", "loss"))
    notes = (
        network_note(manifest, named), data_note(manifest, named),
        method_note(manifest, (str(fields.get("method")),)),
    )  # fmt: skip
    for text in filter(None, notes):
        reporter.note(text)
    settings = manifest.settings.model_dump(exclude={"options"})
    options = {key: str(value) for key, value in manifest.settings.options.items()}
    return {**settings, **fields}, {**options, **request.options}, manifest.preset
