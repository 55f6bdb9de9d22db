"""Code of the user's own that a run or a checkpoint names, and whether it may run without being named."""

from collections.abc import Collection
from importlib.metadata import entry_points
from pathlib import Path

from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, MethodCode
from fedscope.errors import UserError
from fedscope.own import DATASETS, METHODS, MODELS, SHOWN, is_own, package_digest, vouched


def network_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if the network's code has changed since training, else "".

    ``named`` are the names that the user gave.

    Raises:
        UserError: the code must not be run without being named, or is not found.
    """
    name, source = record.model.name, record.model.source
    return vouched((name,), source, "--model", MODELS, named=name in named) if is_own(name) else ""


def data_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if the code that makes the data has changed since training, else "".

    Raises:
        UserError: as :func:`network_note`.
    """
    name, test = record.data.name, record.settings.test_data
    if not is_own(name):
        return ""
    makers = (name, test) if test else (name,)
    return vouched(makers, record.data.source, "--data", DATASETS, named=name in named)


def method_code(method: str) -> MethodCode | None:
    """Return what is installed of another package's method; None where no package registers it."""
    for point in entry_points(group=METHODS, name=method):
        package = {"package": point.dist.name, "version": point.dist.version} if point.dist else {}
        return MethodCode(method=method, source=package_digest(point.value), **package)
    return None


def changed_methods(manifest: Manifest) -> list[str]:
    """Say of each of the run's methods whose code is another now, or gone, what it was and what it is."""
    found = []
    for then in manifest.methods:
        now = method_code(then.method)
        if now is None:
            found.append(f"the method {then.text}, which the run was trained with, is not installed")
        elif (then.source or now.source) and then.source != now.source:
            found.append(
                f"the source of the method {then.method} has changed since training ({then.package} "
                f"{then.version}, {then.source[:SHOWN] or 'unknown'} then, {now.package} {now.version}, "
                f"{now.source[:SHOWN] or 'unknown'} now)"
            )
        elif not now.source and (then.package, then.version) != (now.package, now.version):
            found.append(
                f"the method {then.method} is of {now.package} {now.version} now, of {then.package} "
                f"{then.version} in training"
            )
    return found


def method_note(manifest: Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if code of the run's methods has changed since training, else "".

    Raises:
        UserError: it has, and the user has not named the method.
    """
    changed = "; ".join(changed_methods(manifest))
    if changed and manifest.settings.method not in named:
        raise UserError(f"{changed}; if it computes the same, name it: --method {manifest.settings.method}")
    return changed


def names(path: Path, model: str | None, data: str | None) -> bool:
    """Say whether the user names only the network and the data that the checkpoint itself names."""
    if not (model or data):
        return True
    try:
        info = describe_checkpoint(path)[0]
    except UserError:  # of another program
        return False
    known = info.model.classes is not None
    return known and model in (None, info.model.name) and data in (None, info.data.name)
