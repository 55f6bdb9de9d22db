"""Which answers of commands may be stored: what a question is, and the files that its answer rests on.

    REGISTRY/.analysis/answers/NAME.json     what `hessian` or `plot-landscape` printed

Checkpoints and results are compared by their bytes, the folder of a data set and of a run whose clients are
compared by size and times of every file in it. Nothing is stored where something may change unnoticed: code
of the user's own or of another package, several processes.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.own import is_own
from fedscope.workflows import catalogues
from fedscope.workflows.results.stored_answers import Stamps, name_of, stamps
from fedscope.workflows.sources.targets import Targets

VARIABLES = ("FEDSCOPE_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "TORCH",
             "PYTORCH", "ATEN_", "LD_", "PYTHONPATH", "CUDA_", "NVIDIA_", "CUBLAS_", "HIP_",
             "ROCR_")  # fmt: skip
DEVICES = Path("/dev")
GPUS = ("nvidia*", "nvmap", "dxg", "kfd")  # there


class AnswerFile(NamedTuple):
    """The file of an answer, and the checkpoints that it is about."""

    file: Path
    checkpoints: tuple[Path, ...]


def place(targets: Targets, *question: object) -> AnswerFile | None:
    """Return where the answer to a question about targets is stored; None unless it rests on files alone."""
    alone = "WORLD_SIZE" not in os.environ  # else one of torchrun's processes would wait for the others
    own = any((targets.model, targets.data, targets.loss, targets.entry))
    if own or not alone or has_torch() or catalogues.extended():
        return None
    store = RunRegistry(targets.registry)
    try:
        paths = tuple(store.resolve(reference) for reference in targets.checkpoints or (None,))
    except UserError:  # said by what reads them, which may know more names
        return None
    machine = {
        "gpus": sorted(str(path) for kind in GPUS for path in DEVICES.glob(kind)),
        "cores": (os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0),
        "variables": {name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
    }
    name = name_of([targets, question, paths, machine])
    return AnswerFile(store.analysis / "answers" / f"{name}.json", paths)


def has_torch() -> bool:
    """Say whether PyTorch is imported: using it costs nothing, and its threads may have been set."""
    return "torch" in sys.modules


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
