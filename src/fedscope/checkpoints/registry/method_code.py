"""The code of other packages' methods: what a run was trained with, and what is installed now."""

from collections.abc import Collection
from importlib.metadata import entry_points

from fedscope.checkpoints.file.schema import Manifest, MethodCode
from fedscope.errors import UserError
from fedscope.own import METHODS, SHOWN, package_digest


def method_code(method: str) -> MethodCode | None:
    for point in entry_points(group=METHODS, name=method):
        package = {"package": point.dist.name, "version": point.dist.version} if point.dist else {}
        return MethodCode(method=method, source=package_digest(point.value), **package)
    return None


def is_same(then: MethodCode, now: MethodCode) -> bool:
    if then.source or now.source:
        return then.source == now.source
    return (then.package, then.version) == (now.package, now.version)


def changed_methods(manifest: Manifest) -> list[str]:
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
    changed = "; ".join(changed_methods(manifest))
    if changed and manifest.settings.method not in named:
        raise UserError(f"{changed}; if it computes the same, name it: --method {manifest.settings.method}")
    return changed
