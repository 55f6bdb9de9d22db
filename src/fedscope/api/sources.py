"""Checkpoints, networks and data as users hold them, as the problems that are analysed."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from fedscope.api.reporting import reporter
from fedscope.checkpoints.file.checkpoint import content_hash
from fedscope.checkpoints.foreign.fitting import fit
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.choices import BatchNormMode, DtypeName, SplitName
from fedscope.errors import UserError
from fedscope.factories import called, imported
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import statistics
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.process import use_device
from fedscope.workflows.sources.own_problem import own_batches, own_samples, train_part
from fedscope.workflows.sources.problem import Problem, own_problem
from fedscope.workflows.sources.problems import file_or_registered, problems
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.sources.targets import Targets


class On(TypedDict, total=False):
    """Where checkpoints are found, and on which samples they are analysed.

    ``samples``: how many, a fixed draw; by default 1,024 of a run's own data, all of yours. ``data``: your
    own: a pair (inputs, targets), a ``DataLoader``, a data set of PyTorch or Hugging Face, any iterable of
    batches, ``Batches``, a function that returns one of these, or MODULE:FACTORY. ``model``: the network of
    your own file: a module, a function that makes one, or MODULE:FACTORY. ``loss``: (output, targets) ↦ the
    mean over the batch, or MODULE:FUNCTION; by default cross-entropy. ``split``: of a run's data.
    ``batch_size``: by default 128, of your own data fewer where that makes 16 batches. ``dtype`` and
    ``device``: by default float32 and a GPU if there is one; of a module its own. ``seed``: of samples and
    probes. ``registry``: by default FEDSCOPE_REGISTRY, or ``checkpoints``. ``data_dir``: folder of data sets,
    by default FEDSCOPE_DATA. ``names``: what networks and weights of your own are called in tables and
    figures, in their order; by default their classes or files. ``progress``: show bars on standard error.
    """

    samples: int | Literal["all"]
    data: Any
    model: Any
    loss: LossFunction | str
    split: SplitName
    batch_size: int
    dtype: DtypeName
    device: str
    seed: int
    registry: str | Path
    data_dir: str | Path
    names: str | Sequence[str]
    progress: bool


@dataclass(frozen=True)
class Reference:
    """A checkpoint of a registry."""

    name: str  # RUN, RUN@25, RUN@best…
    registry: Path


class Referring(ABC):
    """A result that is a checkpoint of a registry, so that it can be measured itself."""

    @property
    @abstractmethod
    def reference(self) -> Reference:
        """Which checkpoint."""


Weights = str | Path | Referring | nn.Module | Mapping[str, Tensor]
"""RUN, RUN@25, RUN@best… or a file; a run or checkpoint; a network; or a state_dict."""


def registry_folder(on: On) -> Path:
    """Return the folder of the registry."""
    return Path(on.get("registry", os.environ.get("FEDSCOPE_REGISTRY", "checkpoints")))


@dataclass(frozen=True)
class Found:
    """Problems, and the folder of the results that are kept of them; None where nothing is kept."""

    problems: list[Problem]
    keep: Path | None


def found(what: Sequence[Weights], on: On, bn: BatchNormMode = "eval") -> Found:
    """Return a problem for each of several checkpoints or networks, all on the same samples.

    ``bn`` says whether BatchNorm's statistics are read. Results are kept of checkpoints in their own
    registry, and not of objects, which no file holds.
    """
    named = names_of(what, on)
    if named is not None:
        references, registry = named
        targets = targets_of(references, registry, on, bn)
        return Found(problems(targets, reporter(progress=False)), RunRegistry(registry).analysis)
    if "data" not in on:
        raise UserError(
            "a network of your own is measured on data of yours: give data=(inputs, targets) or a loader"
        )
    loss = on.get("loss", cross_entropy)
    loss_fn = imported(loss, "--loss") if isinstance(loss, str) else loss
    given = _batches(on["data"], loss_fn)
    made = [_network(one, on, bn) for one in what]
    if not made:
        raise UserError("there is no network: give a module, a file or a state_dict")
    source = replace(_source(made[0][0], on), bn=bn)
    batches, rows = own_samples(given, source)
    own = [
        Problem(_placed(model, source), loss_fn, batches, source, Path(name), sha256, None, notes, rows)
        for (model, _, sha256, notes), name in zip(made, _names([one[1] for one in made], on), strict=True)
    ]
    return Found([own_problem(problem) for problem in own], None)


def _names(found: Sequence[str], on: On) -> list[str]:
    """Return what the networks are called: as asked for, else as ``found``, those of one name numbered."""
    if "names" not in on:
        counts = [found[: place + 1].count(name) for place, name in enumerate(found)]
        return [name if count == 1 else f"{name}-{count}" for name, count in zip(found, counts, strict=True)]
    names = [on["names"]] if isinstance(on["names"], str) else list(on["names"])
    if len(names) != len(found) or len({*names}) < len(names):
        raise UserError(f"names are {len(found)}, one for each network and all different, not {names}")
    if any(not name or "/" in name for name in names):
        raise UserError(f"names are not empty and have no slash, unlike one of {names}")
    return names


def names_of(what: Sequence[Weights], on: On) -> tuple[list[str], Path] | None:
    """Return the references of checkpoints and their registry; None where an object is among them."""
    given = (on.get("data"), on.get("model"), on.get("loss"))
    if not all(one is None or isinstance(one, str) for one in given):
        return None
    if any(isinstance(one, nn.Module | Mapping) for one in what):
        return None
    if "names" in on:
        raise UserError("runs and files that a text names have names of their own; leave names out")
    referring = [one.reference for one in what if isinstance(one, Referring)]
    places = {one.registry.absolute() for one in referring}
    if len(places) > 1 or (places and "registry" in on and places != {registry_folder(on).absolute()}):
        raise UserError("the checkpoints lie in several registries; name files, or copy the runs to one")
    place = referring[0].registry if referring else registry_folder(on)
    return [one.reference.name if isinstance(one, Referring) else str(one) for one in what], place


def targets_of(names: Sequence[str], registry: Path, on: On, bn: BatchNormMode = "eval") -> Targets:
    """Return checkpoints and samples as plain data."""
    keys = ("samples", "split", "batch_size", "dtype", "device", "seed", "model", "data", "loss")
    given: dict[str, Any] = {key: value for key, value in on.items() if key in keys}
    folder = Path(on["data_dir"]) if "data_dir" in on else None
    threads = torch.get_num_threads()  # which are the session's
    return Targets(registry, tuple(names), data_dir=folder, bn=bn, threads=threads, **given)


def _network(one: Weights, on: On, bn: BatchNormMode) -> tuple[nn.Module, str, str, tuple[str, ...]]:
    if isinstance(one, nn.Module):
        return one, type(one).__name__, content_hash(one.state_dict()), ()
    if "model" not in on:
        raise UserError(f"{_said(one)} is weights alone: give model=, a module or a function that makes one")
    made = on["model"]
    if not isinstance(made, nn.Module):
        made = called(made, "--model") if isinstance(made, str) else made()
    if not isinstance(made, nn.Module):
        raise UserError(f"model= gave {type(made).__name__}, not a torch.nn.Module")
    model = whole_copy(made)
    held: Any = one if isinstance(one, Mapping) else read(_file(one, on))
    wanted = model.state_dict(keep_vars=True)
    fitted = fit(held, wanted, _said(one), statistics=statistics(model), bn=bn)
    model.load_state_dict(fitted.state)
    return model.eval(), Path(_said(one)).name, content_hash(fitted.state), fitted.notes


def _file(one: str | Path | Referring, on: On) -> Path:
    if isinstance(one, Path):
        return one
    if isinstance(one, Referring):
        return RunRegistry(one.reference.registry).resolve(one.reference.name)
    return file_or_registered(one, RunRegistry(registry_folder(on)))


def _said(one: object) -> str:
    if isinstance(one, Referring):
        return one.reference.name
    if isinstance(one, Mapping):
        return "state_dict"
    return str(one) if isinstance(one, str | Path) else f"the {type(one).__name__}"


def _source(model: nn.Module, on: On) -> Source:
    first = next(iter(model.parameters()), torch.empty(0))
    samples, loss = on.get("samples", "all"), on.get("loss")
    if loss is not None and not isinstance(loss, str):
        loss = str(getattr(loss, "__name__", type(loss).__name__))
    return Source(
        samples=None if samples == "all" else samples,
        model=type(model).__name__,
        data=on["data"] if isinstance(on["data"], str) else type(on["data"]).__name__,
        loss=loss,
        dtype=getattr(torch, on["dtype"]) if "dtype" in on else first.dtype,
        device=use_device(on["device"], torch.get_num_threads()) if "device" in on else first.device,
        batch_size=on.get("batch_size"),
        seed=on.get("seed", 0),
    )


def _batches(data: Any, loss: LossFunction) -> Batches:
    if isinstance(data, str):
        return own_batches(data, loss)
    made = data() if callable(data) and not isinstance(data, Iterable | Dataset) else data
    return Batches.of(train_part(made), loss=loss)


def _placed(model: nn.Module, source: Source) -> nn.Module:
    """Return the module, or a copy of it where it is on another device or of another dtype."""
    first = next(iter(model.parameters()), None)
    if first is None or (first.device, first.dtype) == (source.device, source.dtype):
        return model
    return whole_copy(model).to(source.device, source.dtype)
