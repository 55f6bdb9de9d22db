"""The model, loss and batches that are analysed, of a checkpoint or of a user's own model and data."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import VerifiedCheckpoint, describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.checkpoints.registry.owned import check_content, data_note, names, network_note
from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import never_run, tell_elsewhere
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.loss.mean_loss import NoMeanError, check_mean
from fedscope.landscape.loss.trees import Tree, joined, leaves
from fedscope.lora import LoRA
from fedscope.models import catalogue as model_catalogue
from fedscope.process import is_little
from fedscope.workflows.sources.own_problem import OwnData, filled, own_data, own_network
from fedscope.workflows.sources.samples import MOST, Source, data_of, draw

_NETWORK = "--model MODULE:FACTORY or hf:FOLDER for the network"
_SAMPLES = "--data MODULE:FACTORY, text:PATH or images:PATH for its samples"


@dataclass(frozen=True)
class Problem:
    """A network with its weights, the loss, and the samples; and what the results say about them."""

    model: nn.Module
    loss_fn: LossFunction
    batches: Batches
    source: Source
    path: Path
    sha256: str
    info: CheckpointInfo | None  # None for a plain state_dict
    notes: tuple[str, ...] = ()  # what was renamed or left out of another program's file
    rows: Tensor | None = None  # (samples,) of the run's split, or of the user's own data; None: all
    registered: CheckpointInfo | None = None  # of a registered file whose network or data are the user's own

    @property
    def title(self) -> str:
        """Its name in progress and notes: RUN@ROUND, with its client or average; else the file's name."""
        info = self.info or self.registered
        if info is None:
            return self.path.stem
        if info.average == "sent":  # before the round that began with it
            return f"{info.run}@{info.round + 1}:anchor"
        which = f" client {info.client}" if info.client is not None else ""
        which += f" step {info.step}" if info.step else ""
        return f"{info.run}@{info.round}{which}"

    @property
    def told(self) -> tuple[str, ...]:
        """What a reader of the numbers must know of samples and statistics."""
        new = never_run(self.model) if self.source.bn == "eval" else ""
        return (*self.batches.notes, *([new] if new else []))

    @property
    def is_little(self) -> bool:
        """Whether a batch is little work for one thread; of large networks no batch is read for it."""
        size, rows = sum(p.numel() for p in self.model.parameters()), max(self.batches.sizes)
        if not is_little(size, rows, torch.zeros(1)):
            return False
        return is_little(size, rows, next(leaves(next(iter(self.batches))[0]))[0])

    @property
    def method(self) -> str | None:
        info = self.info or self.registered
        return info.settings.method if info and info.settings.method != UNKNOWN else None

    @property
    def _is_whole(self) -> bool:
        return self.info is None and (self.source.samples or math.inf) > self.batches.samples

    @cached_property
    def checkpoint(self) -> dict[str, object]:
        return checkpoint_entry(self.path, self.sha256, self.info or self.registered)

    @cached_property
    def description(self) -> dict[str, object]:
        own, lora = self.source, getattr(self.model, "lora", None)
        return {
            "model": self.info.model.name if self.info else own.model,
            **({"lora": lora.text} if isinstance(lora, LoRA) else {}),
            "method": self.method,
            "dataset": self.info.data.name if self.info else own.data,
            **({"loss": loss} if (loss := own.loss or (self.info and self.info.settings.loss)) else {}),
            **({"augmented": True} if own.augment else {}),
            **({"normalisation": own.normalisation} if own.normalisation else {}),
            "split": own.split if self.info else None,
            "samples": self.batches.samples,
            "batch_size": max(self.batches.sizes),
            "dtype": str(own.dtype).removeprefix("torch."),
            **({"whole": True} if self._is_whole else {}),
            "seed": own.seed,
            "device": str(own.device),
            "threads": torch.get_num_threads(),
            **({"notes": list(self.told)} if self.told else {}),
        }

    def entry(self, **how: str) -> dict[str, object]:
        """Return the description, and of how it is measured what is not empty: a record's ``problem``."""
        of = self.batches.population
        stated = {name: text for name, text in how.items() if text}
        return {**self.description, **({"population": of} if of is not None else {}), **stated}


def checkpoint_entry(path: Path, sha256: str, info: CheckpointInfo | None) -> dict[str, object]:
    """Return which weights a file holds; without ``info`` those of a plain state_dict."""
    named = ("run", "round", "client", "average")
    about = {name: getattr(info, name) if info else None for name in named}
    step = {"step": info.step} if info and info.step else {}
    return {"path": str(path), "sha256": sha256, **about, **step}


def renamed(path: Path, info: CheckpointInfo) -> CheckpointInfo:
    """Return a description under the name of the run that the file lies in, which may be another now."""
    folder = layout.run_of(path)
    return info if folder is None or folder.name == info.run else info.model_copy(update={"run": folder.name})


def load(paths: Sequence[Path], source: Source) -> list[Problem]:
    """Build the problems of several checkpoints, all on the same samples."""
    if all(names(path, source.model, source.data, source.loss) for path in paths):
        code = (source.model, source.data, source.loss)
        named = replace(source, model=None, data=None, loss=None, named=code)
        return [_registered(path, named) for path in paths]
    for path in paths:
        check_content(path, source.model, source.data)
    lacking = [flag for flag, given in ((_NETWORK, source.model), (_SAMPLES, source.data)) if not given]
    if lacking:
        raise UserError(
            "--model and --data go together, with --loss if it is not cross-entropy: add "
            f"{' and '.join(lacking)}"
        )
    data = own_data(source)
    return [_own(path, source, data) for path in paths]


def _registered(path: Path, source: Source) -> Problem:
    checkpoint = load_checkpoint(path)
    checkpoint = replace(checkpoint, info=source.placed(renamed(path, checkpoint.info)))
    _check_known(checkpoint)
    network_note(checkpoint.info, source.named)  # its tokenizer may prepare the data
    data = data_of(path, checkpoint.info, source)
    rows = data.used[draw(len(data.used), source)]
    batches = data.batches(checkpoint.info, source, rows, population=len(data.used))
    model = network(checkpoint, source)
    info = checkpoint.info
    code = (network_note(info, source.named), data_note(info, source.named))
    notes = (*filter(None, code), *_frozen(model))
    loss_fn = data.split.task_loss.function
    return Problem(model, loss_fn, batches, source, path, checkpoint.sha256, info, notes, rows)


def _check_known(checkpoint: VerifiedCheckpoint) -> None:
    spec, data = checkpoint.info.model, checkpoint.info.data
    if spec.classes is None or not data.fingerprint:
        raise UserError(
            f"{checkpoint.path} is of the network {spec.name} on {data.name}, which fedscope lacks; add "
            "--model MODULE:FACTORY and --data MODULE:FACTORY"
        )


def network(checkpoint: VerifiedCheckpoint, source: Source) -> nn.Module:
    """Return the checkpoint's network with its weights, in eval mode."""
    network_note(checkpoint.info, source.named)  # before any of its code is run
    model = model_catalogue.build(**checkpoint.info.model.arguments, generator=torch.Generator())
    return filled(model, checkpoint.state, source, checkpoint.path)


def _own(path: Path, source: Source, data: OwnData) -> Problem:
    model, notes, sha256 = own_network(path, source)
    problem = Problem(
        model, data.loss_fn, data.batches, source, path, sha256, None, notes, data.rows, _description(path)
    )
    return own_problem(problem)


def _description(path: Path) -> CheckpointInfo | None:
    """Return what a file of a run says of itself; None of a file that lies in no run."""
    if layout.run_of(path) is None:
        return None
    with suppress(UserError):
        return renamed(path, describe_checkpoint(path)[0])
    return None


def own_problem(problem: Problem) -> Problem:
    """Return the problem of a user's own network and data, with its loss tried on the first batch.

    Small data whose loss is no mean over samples becomes one batch.
    """
    problem = replace(problem, notes=(*problem.notes, *_frozen(problem.model)))
    source, batches, loss_fn = problem.source, problem.batches, problem.loss_fn
    if source.bn != "eval":
        tell_elsewhere(problem.model)  # the loss alone is tried with statistics that are not measured with

    def named(output: Any, targets: Tree) -> Tensor:
        try:
            return loss_fn(output, targets)
        except Exception as error:  # whatever the user's loss raises
            name = source.loss or "cross-entropy (give another with --loss)"
            raise UserError(f"the first batch of {source.data} fails in {name}: {reason(error)}") from error

    try:
        check_mean(problem.model, named, batches)
    except NoMeanError:
        if source.batch_size or batches.samples > MOST:
            raise
        whole = [tuple(joined(list(parts)) for parts in zip(*batches, strict=True))]
        note = f"the loss is no mean over samples: all {batches.samples} are one batch"
        return replace(problem, batches=Batches.from_iterable(whole), notes=(*problem.notes, note))
    except UserError:
        raise
    except Exception as error:  # whatever the user's network raises
        raise UserError(
            f"the first batch of {source.data} fails in {source.model}: {reason(error)}"
        ) from error
    return problem


def _frozen(model: nn.Module) -> tuple[str, ...]:
    """Return a note on parameters that are left out; those below adapters always are."""
    counts = [(p.numel(), p.requires_grad) for p in model.parameters()]
    trained = sum(count for count, wanted in counts if wanted)
    frozen = sum(count for count, wanted in counts if not wanted)
    if not frozen or getattr(model, "lora", None):
        return ()
    return (f"left out {frozen:,} parameters that require no gradient; {trained:,} are analysed",)
