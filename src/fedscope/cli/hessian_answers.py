"""Where the answers of `fedscope hessian` are kept, beside its results, and what they rest on.

    REGISTRY/.analysis/answers/NAME.json     what one command said, word for word
                               BASIS.json    what any request of a checkpoint on these samples is about

With its basis, a request is answered by any result that holds it (:mod:`fedscope.workflows.results.lookup`).
The checkpoints and the results count by their bytes, a data set's folder and, with ``--clients``, the run's
by what the file system says of every file in it. Whatever may change unseen is looked up the long way: code
of the user's own or of another package, a GPU, several processes.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from fedscope import __version__
from fedscope.checkpoints.registry.registry import Registry
from fedscope.cli import answers, catalogues, console
from fedscope.cli.answers import Rests, name_of, stamps
from fedscope.cli.hessian_shown import shown
from fedscope.cli.reading import request_of
from fedscope.errors import UserError
from fedscope.own import is_own
from fedscope.workflows.results import lookup as reuse

VARIABLES = ("FEDSCOPE_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "TORCH",
             "PYTORCH", "ATEN_", "LD_", "PYTHONPATH")  # fmt: skip
GPUS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
LONG = ("figure", "recompute", "model", "data", "loss", "entry", "global_model")  # options looked up so
UNASKED = ("device", "threads", "form", "form_reason")  # entries of a problem that no request is about
BASIC = {
    "samples": None, "split": None, "data_dir": None, "dtype": None, "batch_size": None, "seed": None,
    "device": None, "threads": None, "bn": None, "operator": "hessian", "parameters": (),
}  # fmt: skip
"""The options that say what is measured, whatever parts of it: by what those commands take that lack them."""


class Place(NamedTuple):
    """Where an answer is kept, and the checkpoints that it is about."""

    file: Path
    checkpoints: tuple[Path, ...]


def place(given: Mapping[str, Any]) -> Place | None:
    """Return where the answer to these options is; None where it is to be looked up the long way.

    Raises:
        UserError: there is no such checkpoint.
    """
    if (given["reading"], given["engine"]) != ("paper", "fedscope") or not is_lasting(given):
        return None
    store, context = Registry(given["registry"]), click.get_current_context()
    options = {name: value for name, value in given.items() if name != "json_target"}
    paths = tuple(store.resolve(reference) for reference in given["checkpoints"] or (None,))
    sources = {name: (value, context.get_parameter_source(name)) for name, value in options.items()}
    return Place(_file(given, options=sources, checkpoints=paths), paths)


def is_lasting(given: Mapping[str, Any]) -> bool:
    """Say whether what is measured with these options rests on files alone."""
    on_cpu = given["device"] == "cpu" or (given["device"] == "auto" and not any(map(os.path.exists, GPUS)))
    alone = "WORLD_SIZE" not in os.environ  # else one of torchrun's processes would wait for the others
    return (
        on_cpu and alone and not any(map(given.get, LONG)) and not has_torch() and not catalogues.extended()
    )


def _file(given: Mapping[str, Any], **asked: object) -> Path:
    """Return where the answer to a question is kept, of the machine as it is set up."""
    machine = {
        "cores": (os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0),
        "variables": {name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
    }
    return Registry(given["registry"]).analysis / "answers" / f"{name_of({**asked, **machine})}.json"


def has_torch() -> bool:
    """Say whether PyTorch is imported: using it costs nothing, and its threads may have been set."""
    return "torch" in sys.modules


class Basis(NamedTuple):
    """What the next requests of a checkpoint may rest on, and where it is kept."""

    file: Path
    rests: Rests
    clients: bool  # of requests that compare the clients


def bases(given: Mapping[str, Any], checkpoint: Path, *, clients: bool) -> list[Basis]:
    """Return the bases of requests of a checkpoint without and, for ``clients``, with the clients.

    Nothing where what is measured may change unseen. It needs PyTorch.
    """
    found = []
    for compared in (False, True) if clients else (False,):
        rests = rests_on([checkpoint], given["data_dir"], clients=compared)
        if rests is None:
            return []
        found.append(Basis(_basis(given, checkpoint, clients=compared), rests, compared))
    return found


def keep_bases(bases: Iterable[Basis], record: Mapping[str, Any], remarks: Sequence[console.Piece]) -> None:
    """Keep what a record of a checkpoint is about, and the remarks on it, for what is asked of it later."""
    entry = {"parameters": None, "loss": None, **record["problem"]}
    entry = {name: value for name, value in entry.items() if name not in UNASKED}
    cross = record["cross_client"] or {}
    rows = cross.get("rows_sha256")
    known = "uploads" in cross and (rows or cross["data"] == "global")
    for basis in bases:
        if known or not basis.clients:
            origin = {"uploads": cross["uploads"], "rows": rows} if basis.clients else {}
            content = {"checkpoint": record["checkpoint"], "problem": entry, **origin}
            answers.keep(basis.file, basis.rests, content, remarks=remarks)


def give_part(place: Place, given: Mapping[str, Any], json_target: str | None) -> bool:
    """Print what a result that is kept has of the answer; return whether one has all of it.

    Several checkpoints are compared, which is computed: they are looked up the long way.
    """
    if len(place.checkpoints) > 1:
        return False
    known = answers.kept(_basis(given, place.checkpoints[0], clients=given["clients"]))
    if known is None:
        return False
    about, request = known["content"], request_of(given, dict(given))
    sha256 = about["checkpoint"]["sha256"]
    wanted = reuse.Wanted(sha256, about["problem"], __version__, about.get("uploads", {}), about.get("rows"))
    found = reuse.earlier(reuse.results(place.file.parents[1], sha256), request, wanted)
    if found is None or found[1]:
        return False
    record = {**reuse.trimmed(found[0], request), "checkpoint": about["checkpoint"], "reused": True}
    answers.say(json_target, record, shown([record]), known["remarks"])
    return True


def _basis(given: Mapping[str, Any], checkpoint: Path, *, clients: bool) -> Path:
    about = {name: given.get(name, default) for name, default in BASIC.items()}
    compared = [given.get("client_weights"), given.get("client_data")] if clients else None
    return _file(given, basis=about, checkpoint=checkpoint, clients=compared)


def rests_on(checkpoints: Iterable[Path], data_dir: Path | None, *, clients: bool) -> Rests | None:
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
    """Return the folder of a data set, or nothing for one that comes with its package.

    Raises:
        UserError: its files are not all in a folder of its own.
    """
    from fedscope.data.reading import loading, sources
    from fedscope.data.sets import catalogue
    from fedscope.data.sets.root import root

    entry, folder = catalogue.record(name), root(data_dir)
    if entry.built_in and data_dir is None:
        return []
    home = folder / entry.folder if folder else loading.cache_folder(entry, None)
    read = sources.local(entry, folder, fetch=False).files if folder and not entry.built_in else ()
    if entry.built_in or not home.is_dir() or not all(file.is_relative_to(home) for file in read):
        raise UserError(f"the files of {name} are not in a folder of its own")
    return [home]
