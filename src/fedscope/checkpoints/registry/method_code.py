"""The code of other packages' methods: what a run was trained with, and what is installed now."""

from collections.abc import Collection
from importlib.metadata import entry_points

from fedscope.checkpoints.file.schema import Manifest, MethodCode
from fedscope.errors import UserError
from fedscope.own import METHODS, SHOWN, package_digest


def method_code(method: str) -> MethodCode | None:
    """Return what is installed of another package's method; None where no package registers it."""
    for point in entry_points(group=METHODS, name=method):
        package = {"package": point.dist.name, "version": point.dist.version} if point.dist else {}
        return MethodCode(method=method, source=package_digest(point.value), **package)
    return None


def is_same(then: MethodCode, now: MethodCode) -> bool:
    """Say whether a method's code is the same: by its source or, where none is known, by its version."""
    if then.source or now.source:
        return then.source == now.source
    return (then.package, then.version) == (now.package, now.version)


def changed_methods(manifest: Manifest) -> list[str]:
    """Say of each of the run's methods whose code is another now, or gone, what it was and what it is."""
    found = []
    for then in manifest.methods:
        now = method_code(then.method)
        if now is None:
            found.append(f"the method {then.text}, which the run was trained with, is not installed")
        elif is_same(then, now):
            continue
        elif then.source or now.source:
            found.append(
                f"the source of the method {then.method} has changed since training ({then.package} "
                f"{then.version}, {then.source[:SHOWN] or 'unknown'} then, {now.package} {now.version}, "
                f"{now.source[:SHOWN] or 'unknown'} now)"
            )
        else:
            found.append(
                f"the method {then.method} is of {now.package} {now.version} now, of {then.package} "
                f"{then.version} in training"
            )
    return found


def method_note(manifest: Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if code of the run's methods has changed since training, else ""."""
    changed = "; ".join(changed_methods(manifest))
    if changed and manifest.settings.method not in named:
        raise UserError(f"{changed}; if it computes the same, name it: --method {manifest.settings.method}")
    return changed
