"""Models of a run deleted while the run stays: its clients', their steps', or single global ones."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.storage import is_writable, remove, remove_empty


def delete_clients(run: RunFolder) -> int:
    """Delete a finished run's client models, of which its manifest is told first; return how many."""
    parts = _below("clients", "steps")
    return _delete(run, parts, lambda _: {"clients_deleted": True}, besides=("anchor.pt",))


def delete_steps(run: RunFolder) -> int:
    return _delete(run, _below("steps"), lambda _: {"steps_deleted": True})


def delete_checkpoints(run: RunFolder, names: Collection[str]) -> int:
    """Delete global models of a finished run, such as ``final.pt``; first its manifest takes their hashes.

    What was measured of them stands for them from then on (:mod:`fedscope.reproduce.runs.measurements`), and
    the run stays finished. Return how many there were.
    """
    from fedscope.checkpoints.file.checkpoint import load_checkpoint  # which imports torch

    for name in names:
        if layout.kind(name) != "checkpoint" or re.search(r"last|clients|steps", name):
            raise UserError(f"{name!r} is no global model that may be deleted, such as best.pt or all.pt")

    def recorded(models: Sequence[Path]) -> dict[str, object]:
        found = {path.relative_to(run.folder).as_posix(): load_checkpoint(path).sha256 for path in models}
        return {"checkpoints_deleted": {**run.manifest().checkpoints_deleted, **found}}

    return _delete(run, lambda name: name in names, recorded)


def _delete(
    run: RunFolder,
    chosen: Callable[[str], bool],
    recorded: Callable[[Sequence[Path]], Mapping[str, object]],
    besides: Sequence[str] = (),
) -> int:
    with run.locked():
        if run.status(run.manifest()) == "unfinished":
            raise UserError(f"run {run.name!r} is unfinished, and needs its models; finish it first")
        is_writable(run.client(0), below=run.root)  # refuses a linked folder, in which none is found
        names = [name for name in layout.files(run.folder) if layout.kind(name) == "checkpoint"]
        models = [run.folder / name for name in names if chosen(name)]
        others = [run.folder / name for name in names if Path(name).name in besides]
        if models:
            run.write_manifest(run.manifest().model_copy(update=recorded(models)))
        for path in (*models, *others):
            remove(path, below=run.root)
            for folder in path.parents:  # a folder goes with its last file
                if folder == run.folder or not remove_empty(folder, below=run.root):
                    break
    return len(models)


def _below(*folders: str) -> Callable[[str], bool]:
    return lambda name: bool(set(name.split("/")) & set(folders))
