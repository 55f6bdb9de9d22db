"""Stored answers of `hessian` and `plot-landscape`, beside the results, and the files that they rest on.

    REGISTRY/.analysis/answers/NAME.json     the output of one command
                               BASIS.json    checkpoint, problem and clients of all requests on these samples

With its basis, a request is answered from any result that has all of it
(:mod:`fedscope.workflows.results.lookup`). Checkpoints and results are compared by their bytes, the folder of
a data set and, with ``--clients``, of the run by size and times of every file in it. Nothing is stored where
something may change unnoticed: code of the user's own or of another package, a GPU, several processes.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from fedscope import __version__
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.own import is_own
from fedscope.records.hessian_record import CheckpointEntry, HessianRecord
from fedscope.validation import Plain
from fedscope.workflows import catalogues
from fedscope.workflows.requests import Request
from fedscope.workflows.results import lookup
from fedscope.workflows.results.stored_answers import Answer, Piece, Stamps, name_of, stamps, store, stored
from fedscope.workflows.sources.targets import Targets

VARIABLES = ("FEDSCOPE_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "TORCH",
             "PYTORCH", "ATEN_", "LD_", "PYTHONPATH")  # fmt: skip
GPUS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


class _Subject(Plain):
    """What the requests that share a basis are about."""

    checkpoint: CheckpointEntry
    problem: dict[str, Any]  # as of :func:`lookup.asked_of`
    uploads: dict[str, str] = Field(default_factory=dict)  # where clients are compared; names and hashes
    rows: str | None = None  # the hash of the clients' rows
    samples: str  # the hash of inputs and targets


class AnswerFile(NamedTuple):
    """The file of an answer, and the checkpoints that it is about."""

    file: Path
    checkpoints: tuple[Path, ...]


def place(targets: Targets, *question: object) -> AnswerFile | None:
    if not is_lasting(targets):
        return None
    store = RunRegistry(targets.registry)
    try:
        paths = tuple(store.resolve(reference) for reference in targets.checkpoints or (None,))
    except UserError:  # said by what reads them, which may know more names
        return None
    return AnswerFile(_file(targets, question=(targets, *question), checkpoints=paths), paths)


def is_lasting(targets: Targets) -> bool:
    """Say whether what is measured of these targets rests on files alone."""
    on_cpu = targets.device == "cpu" or (targets.device == "auto" and not any(map(os.path.exists, GPUS)))
    alone = "WORLD_SIZE" not in os.environ  # else one of torchrun's processes would wait for the others
    own = any((targets.model, targets.data, targets.loss, targets.entry))
    return on_cpu and alone and not own and not has_torch() and not catalogues.extended()


def _file(targets: Targets, **asked: object) -> Path:
    machine = {
        "cores": (os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0),
        "variables": {name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
    }
    return RunRegistry(targets.registry).analysis / "answers" / f"{name_of({**asked, **machine})}.json"


def has_torch() -> bool:
    """Say whether PyTorch is imported: using it costs nothing, and its threads may have been set."""
    return "torch" in sys.modules


class MeasuredFiles(NamedTuple):
    """The files that later requests of a checkpoint rest on, and where the basis is stored."""

    file: Path
    rests: Stamps
    clients: bool  # of requests that compare the clients


def bases(targets: Targets, request: Request, checkpoint: Path) -> list[MeasuredFiles]:
    """Return the bases of requests of a checkpoint, without and with the clients. It needs PyTorch."""
    found = []
    for compared in (False, True) if request.clients else (False,):
        rests = rests_on([checkpoint], targets.data_dir, clients=compared)
        if rests is None:
            return []
        found.append(MeasuredFiles(_basis(targets, request, checkpoint, clients=compared), rests, compared))
    return found


def keep_bases(bases: Iterable[MeasuredFiles], record: HessianRecord, remarks: Sequence[str]) -> None:
    entry = lookup.asked_of(record.problem.to_json())
    cross = record.cross_client
    known = cross is not None and cross.uploads is not None and (cross.rows_sha256 or cross.data == "global")
    for basis in bases:
        if known or not basis.clients:
            origin = {"uploads": cross.uploads, "rows": cross.rows_sha256} if basis.clients and cross else {}
            content = {
                "checkpoint": record.checkpoint.to_json(), "problem": entry, **origin,
                "samples": record.samples_sha256,
            }  # fmt: skip
            answer = Answer(content, remarks=[("note", line) for line in remarks])
            store(basis.file, basis.rests, answer)


def answer(
    place: AnswerFile, targets: Targets, request: Request
) -> tuple[HessianRecord, Sequence[Piece]] | None:
    """Return what a stored result has of a request, and the remarks on it; None unless it has every part."""
    if len(place.checkpoints) > 1:
        return None
    known = stored(_basis(targets, request, place.checkpoints[0], clients=request.clients))
    if known is None:
        return None
    subject = _Subject.read(known.content)
    sha256, of_clients = subject.checkpoint.sha256, (subject.uploads, subject.rows)
    criteria = lookup.Criteria(sha256, subject.problem, __version__, *of_clients, subject.samples)
    found = lookup.earlier(lookup.results(place.file.parents[1], sha256), request, criteria)
    if found is None or found.missing:
        return None
    record = lookup.trimmed(found.record, request)
    return record.edited(checkpoint=subject.checkpoint.to_json(), reused=True), known.remarks


def _basis(targets: Targets, request: Request, checkpoint: Path, *, clients: bool) -> Path:
    how = () if request.products == "exact" else (request.products,)
    measured = replace(targets, checkpoints=()), request.bn, request.operator, request.parameters, *how
    compared = (request.cross_client.weights, request.cross_client.data) if clients else None
    return _file(targets, basis=measured, checkpoint=checkpoint, clients=compared)


def rests_on(checkpoints: Iterable[Path], data_dir: Path | None, *, clients: bool) -> Stamps | None:
    """Return the stamps of what is read to measure; None where that may change unseen. It needs PyTorch."""
    from fedscope.checkpoints.file.checkpoint import describe_checkpoint

    paths = set()
    for file in checkpoints:
        try:
            info = describe_checkpoint(file)[0]
            if is_own(info.model.name) or is_own(info.data.name):
                return None
            paths |= {file, *_data(info.data.name, data_dir)}
        except (UserError, OSError):  # of another program, say
            return None
        if clients:
            paths.add(file.parents[1] if file.parent.name == "clients" else file.parent)
    return stamps(paths)


def _data(name: str, data_dir: Path | None) -> list[Path]:
    """Return the folder of a data set, or nothing for one that comes with its package."""
    from fedscope.data.loading import dataset_files, loading
    from fedscope.data.loading.data_folder import root
    from fedscope.data.sets import dataset_catalogue

    entry, folder = dataset_catalogue.record(name), root(data_dir)
    if entry.built_in and data_dir is None:
        return []
    home = folder / entry.folder if folder else loading.cache_folder(entry, None)
    read = dataset_files.local(entry, folder, fetch=False).files if folder and not entry.built_in else ()
    if entry.built_in or not home.is_dir() or not all(file.is_relative_to(home) for file in read):
        raise UserError(f"the files of {name} are not in a folder of its own")
    return [home]
