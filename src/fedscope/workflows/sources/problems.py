"""The problems that targets name: one for each checkpoint, all on the same samples."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

import torch

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.best import chosen_on
from fedscope.checkpoints.registry.owned import names
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.sets.dataset_catalogue import DATASETS
from fedscope.errors import UserError
from fedscope.models.catalogue import NETWORKS
from fedscope.models.pretrained import lora_adapters, networks
from fedscope.models.users_network import network
from fedscope.pretrained import CONFIG, folder, is_data, is_network
from fedscope.process import take_one_thread, use_device
from fedscope.workflows.option_fields import Rule, check
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.sources.targets import SAMPLES, Targets

_FOLDER = Rule[bool]("data_dir", lambda own: not own, "with --data")
_SPLIT = Rule[bool]("split", lambda own: not own, "with --data")


def problems(targets: Targets, reporter: Reporter = SILENT) -> list[Problem]:
    """Return one problem per checkpoint; without any, the registry's newest run."""
    source = Source(
        samples=targets.count,
        split=targets.split,
        data_dir=targets.data_dir,
        model=targets.model,
        data=targets.data,
        loss=targets.loss,
        entry=targets.entry,
        dtype=getattr(torch, targets.dtype),
        device=use_device(targets.device, targets.threads),
        batch_size=targets.batch_size,
        bn=targets.bn,
        seed=targets.seed,
    )
    references = targets.checkpoints or _pretrained(targets) or (None,)
    paths = [checkpoint_path(targets, reference) for reference in references]
    _check_own(paths, targets)
    code = (targets.model, targets.data, targets.loss)
    if targets.samples is None and targets.data and all(names(path, *code) for path in paths):
        source = replace(source, samples=SAMPLES)  # as of the runs, whose network and data these are
    found = load(paths, source)
    if targets.threads is None and source.device.type == "cpu" and all(one.is_little for one in found):
        take_one_thread()
    rules = (_FOLDER,) if is_data(str(targets.data)) else (_FOLDER, _SPLIT)
    check(rules, targets.named, all(problem.info is None for problem in found))
    for line in remarks(found, targets):
        reporter.note(line)
    return found


def at(paths: Sequence[Path], targets: Targets, reporter: Reporter = SILENT) -> list[Problem]:
    """Return the problems of other checkpoints than the targets name, on their samples."""
    return problems(replace(targets, checkpoints=tuple(map(str, paths))), reporter)


def remarks(found: Sequence[Problem], targets: Targets) -> list[str]:
    lines, told = [], dict[str, list[str]]()
    for problem in found:
        if isinstance(targets.samples, int) and problem.batches.samples < targets.samples:
            there = f"{problem.batches.samples:,} samples"
            lines.append(f"{problem.title}: on all {there}, fewer than --samples {targets.samples:,}")
        if problem.info and problem.path.name == "best.pt":
            lines.append(f"{problem.title}: best (chosen on {chosen_on(problem.info.settings.model_dump())})")
        for note in (*problem.notes, *problem.told):
            told.setdefault(note, []).append(str(problem.path))
    return lines + [f"{', '.join(paths)}: {note}" for note, paths in told.items()]


def checkpoint_path(targets: Targets, reference: str | None) -> Path:
    """Return the file of a checkpoint; for a network of the user's own it may be a folder too."""
    registry = RunRegistry(targets.registry)
    if targets.model and reference is not None:
        return file_or_registered(reference, registry)
    if (
        reference
        and targets.data
        and Path(reference).is_dir()
        and not layout.is_run(registry.root / reference)
    ):
        network = reference if (Path(reference) / CONFIG).is_file() else "FOLDER"
        raise UserError(
            f"{reference} is a folder, not a run of the registry {registry.root}; name the pretrained "
            f"network that its weights are for: --model hf:{network}"
        )
    return registry.resolve(reference)


def file_or_registered(reference: str, registry: RunRegistry) -> Path:
    path = Path(reference)
    weights = path.is_file() or networks.is_folder(path) or lora_adapters.is_folder(path)
    if weights or (path.exists() and not layout.is_run(registry.root / path)):
        return path
    return registry.resolve(reference)


def _pretrained(targets: Targets) -> tuple[str, ...]:
    """Return the folder of the pretrained network that is named alone, without a checkpoint."""
    model = str(targets.model)
    if not is_network(model):
        return ()
    if not targets.data:
        raise UserError(
            f"--model {model} is measured with the weights of its folder on data of yours: add --data "
            "text:PATH:LENGTH or images:PATH; or name the CKPT that is based on it"
        )
    if folder(model) is None:
        network(model)  # fetches it from the hub
    return (str(folder(model)),)


def _check_own(paths: Sequence[Path], targets: Targets) -> None:
    foreign = [path for path in paths if not layout.is_ours(path)]
    for flag, name, known in (("--model", targets.model, NETWORKS), ("--data", targets.data, DATASETS)):
        if foreign and name in known:
            raise UserError(
                f"{flag} takes MODULE:FACTORY, a function of your own; for {name} of the catalogue register "
                f"the file: `fedscope runs add {quote(str(foreign[0]))} --model NAME --dataset NAME`, and "
                "name the run"
            )
