"""What `fedscope train` does: settings from a preset and the user, workers, and the result in words."""

from contextlib import nullcontext
from pathlib import Path

import torch

from fedscope.checkpoints.registry import Registry, Run, checked_name
from fedscope.checkpoints.schema import PresetUse, Settings, parse
from fedscope.cli import console, options
from fedscope.errors import UserError
from fedscope.federated import workers
from fedscope.federated.federation import Federation, open_run, prepare
from fedscope.federated.presets import preset as find_preset
from fedscope.federated.rounds import Metrics, assist, train
from fedscope.federated.summary import reached, summary
from fedscope.federated.tensorboard import scalars
from fedscope.process import has_bfloat16


def run(
    fields: dict[str, object],
    given: dict[str, str],
    registry: Path,
    name: str | None,
    *,
    preset: str | None,
    device: str,
    threads: int | None,
    count: int,
    resume: bool,
    data_dir: Path | None,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train on ``count`` workers and print the result, on rank 0."""
    if resume and name and threads is None:  # the bits depend on them
        threads = Registry(registry).run(name).manifest().settings.threads
    chosen = options.use_device(device, threads, count, workers.place())
    result = train_run(
        fields, given, registry, name,
        preset=preset, device=chosen, count=count, resume=resume, data_dir=data_dir, tensorboard=tensorboard,
    )  # fmt: skip
    if result and as_json:
        console.write_json("-", result)
    elif result:
        _show(result)


def train_run(
    fields: dict[str, object],
    given: dict[str, str],
    root: Path,
    name: str | None,
    *,
    device: torch.device,
    preset: str | None = None,
    count: int = 1,
    resume: bool = False,
    data_dir: Path | None = None,
    tensorboard: bool = False,
) -> dict[str, object]:
    """Train with the given fields of :class:`Settings`; return what ``train --json`` prints, on rank 0."""
    use = None
    if resume:
        fields, given = _as_before(fields, given, Registry(root), name, preset)
    elif preset is not None:
        fields, given, use = find_preset(preset).resolve(fields, given)
    where = {"device": str(device), "threads": torch.get_num_threads()}
    settings = parse(Settings, {**fields, **where}, "option")
    if workers.under_torchrun():
        if count > 1:
            raise UserError("torchrun already starts the workers; leave --workers out")
        with workers.joined() as group:
            federation = prepare(settings, given, data_dir)
            if group.rank:
                assist(group, federation)
                return {}
            run = _open(federation, Registry(root), name, use, resume=resume)
            with run.held():
                return _lead(group, federation, run, tensorboard=tensorboard)
    federation = prepare(settings, given, data_dir)  # before the workers: what is wrong is said once
    run = _open(federation, Registry(root), name, use, resume=resume)
    with (
        run.held(),
        workers.started(count, device, settings.threads, assist_run, settings, given, data_dir) as group,
    ):
        return _lead(group, federation, run, tensorboard=tensorboard)


def _as_before(
    fields: dict[str, object], given: dict[str, str], registry: Registry, name: str | None, preset: str | None
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the settings and options of the run to continue, with what the user has set over them."""
    if name is None:
        raise UserError("--resume needs the --name of the run to continue")
    manifest = registry.run(name).manifest()
    before = manifest.preset.name if manifest.preset else None
    if preset not in (None, before):
        raise UserError(f"{name} was started {f'with --preset {before}' if before else 'without a preset'}")
    settings = manifest.settings.model_dump(exclude={"options"})
    return {**settings, **fields}, {key: str(v) for key, v in manifest.settings.options.items()} | given


def assist_run(
    group: workers.Workers, settings: Settings, given: dict[str, str], data_dir: Path | None
) -> None:
    """Be a worker of the run that rank 0 trains."""
    assist(group, prepare(settings, given, data_dir))


def _open(
    federation: Federation, registry: Registry, name: str | None, use: PresetUse | None, *, resume: bool
) -> Run:
    settings = federation.settings
    if federation.dataset.note:
        console.note(f"{settings.dataset}: {federation.dataset.note}")
    if settings.dataset == "domainnet_concept_shift" and settings.shift == "none":
        console.note("no concept shifts without --shift bernoulli or fixed10")
    if settings.precision == "bf16" and not has_bfloat16(torch.device(settings.device)):
        console.note("this processor has no bfloat16 instructions: --precision fp32 is faster here")
    if use:
        values = {**settings.model_dump(), **settings.options}
        for key, why in use.provisional.items():
            console.note(f"{use.name}: {key} {values[key]} is provisional ({why})")
        for change in use.overridden:
            console.note(f"{use.name}: departs in {change}")
    name = checked_name(name) if name else registry.free_name(f"{settings.method}-{settings.dataset}")
    return open_run(federation, registry, name, resume=resume, preset=use)


def _show(result: dict[str, object]) -> None:
    """Print a run's summary as a table."""

    def percent(key: str) -> str:
        return "" if result[key] is None else f"{float(str(result[key])):.2%}"

    cells = {
        "run": str(result["run"]),
        "rounds": str(result["rounds"]),
        "final accuracy": percent("accuracy"),
        "best": percent("best_accuracy"),
        "best by T/2": percent("best_half_accuracy"),
    }
    if "target" in result:
        cells[f"rounds to {percent('target')}"] = reached(result)
    if "shift_accuracy" in result:
        cells["under shift"] = percent("shift_accuracy")
    cells["checkpoint"] = str(result["final"])
    console.print_table("Trained", list(cells), [list(cells.values())])


def _lead(
    group: workers.Workers, federation: Federation, run: Run, *, tensorboard: bool
) -> dict[str, object]:
    """Train as rank 0, telling how far it is."""
    rounds = federation.settings.rounds
    with (
        console.progress(f"{run.name}: round", lines=True) as report,
        scalars(run.folder / "tensorboard") if tensorboard else nullcontext() as board,
    ):

        def show(m: Metrics) -> None:
            loss = "not finite" if m["loss"] is None else f"{m['loss']:.4f}"
            report(int(str(m["round"])), rounds, f"accuracy {m['accuracy']:.2%}, test loss {loss}")
            if board:
                board(m)

        metrics = train(federation, run, show, group)
    state, loss = run.status(run.manifest()), metrics[-1]["train_loss"]
    guessing = log(len(federation.dataset.classes))
    if loss is not None and float(str(loss)) > EXPLODED * guessing:
        console.note(
            f"{run.name}: the training loss is {loss:.3g}, that of guessing is {guessing:.2g}; lower --lr"
        )
    return {
        "run": run.name,
        "registry": str(run.folder.parent),
        "state": state,
        "seed": federation.settings.seed,
        "final": str(run.last if state == "diverged" else run.final),
        "best": str(run.best),
        **summary(federation.settings, metrics),
    }


def pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Split ``OPTION=VALUE`` texts.

    Raises:
        UserError: one has no ``=`` or an option stands twice.
    """
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in result:
            raise UserError(f"--set takes each option once as OPTION=VALUE, not {text!r}")
        result[name] = value
    return result
