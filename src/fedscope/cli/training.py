"""What `fedscope train` does: settings from a preset and the user, workers, and the result in words."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from math import log
from pathlib import Path
from typing import Any

import torch

from fedscope.checkpoints.file.schema import OPTION, PresetUse, Settings, parse
from fedscope.checkpoints.registry.owned import data_note, network_note
from fedscope.checkpoints.registry.registry import NameTakenError, Registry, Run, checked_name
from fedscope.cli import console, options
from fedscope.cli.seeds import each_seed, names
from fedscope.cli.trained import show, show_seeds
from fedscope.cli.unused import check_settings
from fedscope.errors import UserError
from fedscope.federated.parallel import workers
from fedscope.federated.server.rounds import Metrics, assist, train
from fedscope.federated.server.summary import summary
from fedscope.federated.server.tensorboard import scalars
from fedscope.federated.setup.federation import Federation, open_run, prepare
from fedscope.federated.setup.names import divided
from fedscope.federated.setup.presets import preset as find_preset
from fedscope.process import has_bfloat16

EXPLODED = 10  # times the loss of guessing: finite, and hopeless


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
    json_target: str | None,
    seeds: Sequence[int] | None = None,
) -> None:
    """Train on ``count`` workers, once or once for each of the ``seeds``, and print the result, on rank 0.

    Raises:
        UserError: a run diverged, of which all is kept; or as :func:`train_run`.
    """
    store = Registry(registry)
    if resume and threads is None:  # the bits depend on them
        known = [one for one in names(name, seeds) if store.has(one)]
        threads = store.run(known[0]).manifest().settings.threads if known else None
    chosen = options.use_device(device, threads, count, workers.place())

    def one(fields: dict[str, object], **where: Any) -> dict[str, Any]:
        return train_run(
            fields, given, registry, preset=preset, device=chosen, count=count, data_dir=data_dir,
            tensorboard=tensorboard, **where,
        )  # fmt: skip

    if seeds is None:
        results = [one(fields, name=name, resume=resume)]
    else:
        results = list(each_seed(seeds, fields, store, name, one, resume=resume))
    if not results[0]:  # another rank of torchrun's
        return
    to_show = not console.in_json(json_target, results[0] if seeds is None else results)
    if to_show and seeds is not None:
        show_seeds(results)
    elif to_show and results[0]["state"] != "diverged":
        show(results[0])
    _refuse_diverged(results)


def _refuse_diverged(results: Sequence[dict[str, Any]]) -> None:
    """End with exit code 2 where a run diverged: all of it is kept, and the user can mend it.

    Raises:
        UserError: one did.
    """
    diverged = [result for result in results if result["state"] == "diverged"]
    if diverged:
        which = ", ".join(f"{result['run']} in round {result['rounds']}" for result in diverged)
        mend = f"train anew with --lr below {diverged[0]['lr']:g}, or with --clip"
        raise UserError(f"loss or weights not finite: {which} diverged, and is kept as it is; {mend}")


def train_run(
    fields: dict[str, object],
    given: dict[str, str],
    root: Path,
    name: str | None,
    *,
    device: torch.device,
    stem: str | None = None,
    suffixes: tuple[str, ...] = ("",),
    like: str | None = None,
    preset: str | None = None,
    count: int = 1,
    resume: bool = False,
    data_dir: Path | None = None,
    tensorboard: bool = False,
) -> dict[str, object]:
    """Train with the given fields of :class:`Settings`; return what ``train --json`` prints, on rank 0.

    Without a ``name`` the run is called ``stem``, or METHOD-DATASET, with the first of ``suffixes``; all of
    them are free then. ``like`` is a run whose settings it has besides the fields.
    """
    use = None
    if resume or like:
        fields, given, use = _as_before(fields, given, Registry(root), name if resume else like, preset)
    elif preset is not None:
        fields, given, use = find_preset(preset).resolve(fields, given)
    if not (resume or like):
        fields = divided(fields)
    where = {"device": str(device), "threads": torch.get_num_threads()}
    settings = parse(Settings, {**fields, **where}, OPTION)
    check_settings(settings)
    if name is not None and not resume and not workers.under_torchrun():  # there rank 0 makes the folder
        Registry(root).check_free(name)
    before = Registry(root).run(str(name)) if resume else None
    if workers.under_torchrun():
        if count > 1:
            raise UserError("torchrun already starts the workers; leave --workers out")
        with workers.joined() as group:
            federation = prepare(settings, given, data_dir, before)
            if group.rank:
                assist(group, federation)
                return {}
            run = _open(federation, Registry(root), name, use, suffixes, stem=stem, resume=resume)
            with run.held():
                return _lead(group, federation, run, tensorboard=tensorboard)
    federation = prepare(settings, given, data_dir, before)  # before the workers: what is wrong is said once
    run = _open(federation, Registry(root), name, use, suffixes, stem=stem, resume=resume)
    with (
        run.held(),
        workers.started(
            count, device, settings.threads, assist_run, settings, given, data_dir, before
        ) as group,
    ):
        return _lead(group, federation, run, tensorboard=tensorboard)


def _as_before(
    fields: dict[str, object], given: dict[str, str], registry: Registry, name: str | None, preset: str | None
) -> tuple[dict[str, object], dict[str, str], PresetUse | None]:
    """Return settings, options and preset of the run to continue, with what the user has set over them."""
    if name is None:
        raise UserError("--resume needs the --name of the run to continue")
    manifest = registry.run(name).manifest()
    before = manifest.preset.name if manifest.preset else None
    if preset not in (None, before):
        raise UserError(f"{name} was started {f'with --preset {before}' if before else 'without a preset'}")
    named = (str(fields.get("model")), str(fields.get("dataset")))
    for text in filter(None, (network_note(manifest, named), data_note(manifest, named))):
        console.note(text)
    settings = manifest.settings.model_dump(exclude={"options"})
    options = {key: str(value) for key, value in manifest.settings.options.items()}
    return {**settings, **fields}, options | given, manifest.preset


def assist_run(
    group: workers.Workers,
    settings: Settings,
    given: dict[str, str],
    data_dir: Path | None,
    before: Run | None,
) -> None:
    """Be a worker of the run that rank 0 trains; ``before`` is that run where it is continued."""
    assist(group, prepare(settings, given, data_dir, before))


def _open(
    federation: Federation,
    registry: Registry,
    name: str | None,
    use: PresetUse | None,
    suffixes: tuple[str, ...],
    *,
    stem: str | None,
    resume: bool,
) -> Run:
    settings = federation.settings
    if federation.dataset.note:
        console.note(f"{settings.dataset}: {federation.dataset.note}")
    if settings.dataset == "domainnet_concept_shift" and settings.shift == "none":
        console.note("no concept shifts without --shift bernoulli or fixed10")
    if settings.precision == "bf16" and not has_bfloat16(torch.device(settings.device)):
        console.note("this processor has no bfloat16 instructions: --precision fp32 is faster here")
    if use and not resume:
        values = {**settings.model_dump(), **settings.options}
        for key, why in use.provisional.items():
            console.note(f"{use.name}: {key} {values[key]} is provisional ({why})")
        for change in use.overridden:
            console.note(f"{use.name}: departs in {change}")
    if name:
        return open_run(federation, registry, checked_name(name), resume=resume, preset=use)
    stem = stem or f"{settings.method}-{settings.dataset.replace(':', '-')}"
    while True:
        free = registry.free_name(stem, suffixes) + suffixes[0]
        with suppress(NameTakenError):  # another process was quicker
            return open_run(federation, registry, free, resume=False, preset=use)


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

        try:
            metrics = train(federation, run, show, group)
        except KeyboardInterrupt:
            where = f"--name {run.name} --registry {run.folder.parent}"
            raise KeyboardInterrupt(f"go on with `fedscope train --resume {where}`") from None
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
        "lr": federation.settings.lr,
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
