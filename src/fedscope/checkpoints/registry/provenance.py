"""The chain from a figure back to its code: figure, analysis, checkpoint, run, data, code.

Each link names the next by hash: a figure's record holds its analyses, an analysis the content hash of its
checkpoint, a checkpoint its settings, the fingerprint of its data and the versions of its code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import Checkpoint, describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.code import code_version
from fedscope.checkpoints.file.schema import difference
from fedscope.checkpoints.registry.registry import Registry
from fedscope.checkpoints.registry.run import Run
from fedscope.errors import UserError


@dataclass(frozen=True)
class Link:
    """One link: what it is, its name, what it says of itself, and what is wrong with it."""

    kind: str
    name: str
    details: dict[str, str]
    fault: str | None = None


def checkpoint_links(path: Path) -> Iterator[Link]:
    """Yield the links from a checkpoint file back to the code, each verified."""
    try:
        checkpoint = load_checkpoint(path)
    except UserError as error:
        yield Link("checkpoint", str(path), {}, str(error))
        return
    info = checkpoint.info
    what = f"client {info.client}" if info.kind == "client" else f"global ({info.average})"
    details = {"sha256": checkpoint.sha256, "model": info.model.name, "of": what, "round": str(info.round)}
    yield Link("checkpoint", str(path), details)
    yield _run_link(checkpoint)
    data = info.data
    samples = {"train": str(data.train_samples), "test": str(data.test_samples)}
    yield Link("data", data.name, {"fingerprint": data.fingerprint, **samples})
    yield _code_link("trained", info.versions)


def record_links(registry: Registry, name: str, record: Any) -> Iterator[Link]:
    """Yield the links from the record of a figure or an analysis, ``name``, back to the code.

    Raises:
        UserError: the record names no checkpoint.
    """
    figure = isinstance(record, dict) and "analyses" in record
    analyses = record["analyses"] if figure else record if isinstance(record, list) else [record]
    if not analyses or not all(_is_analysis(analysis) for analysis in analyses):
        raise UserError(f"{name} names no analysis of a checkpoint; it was made by an older fedscope")
    if figure:
        yield Link("figure", name, {"analyses": str(len(analyses))})
    for analysis in analyses:
        problem = analysis.get("problem")
        known = {k: str(v) for k, v in problem.items()} if isinstance(problem, dict) else {}
        yield Link("analysis", str(analysis.get("schema", "")), known)
        yield _code_link("analysed", analysis.get("versions"))
        claimed = analysis["checkpoint"]
        path = find(registry, claimed["sha256"], claimed.get("run"))
        if path is None:
            missing = f"no checkpoint with this content is in the registry {registry.root}"
            yield Link("checkpoint", str(claimed.get("path")), {"sha256": claimed["sha256"]}, missing)
        else:
            yield from checkpoint_links(path)


def find(registry: Registry, sha256: str, run: object = None) -> Path | None:
    """Return the checkpoint with that content hash; the run named ``run`` is looked through first."""
    for candidate in sorted(registry.folders(), key=lambda found: found.name != run):
        for name in layout.files(candidate.folder):
            if layout.kind(name) == "checkpoint" and _claims(candidate.folder / name, sha256):
                return candidate.folder / name
    return None


def _claims(path: Path, sha256: str) -> bool:
    try:
        return describe_checkpoint(path)[1] == sha256
    except (UserError, OSError):
        return False


def _run_link(checkpoint: Checkpoint) -> Link:
    """Return the run that the file lies in, compared with what the checkpoint says of itself."""
    folder = layout.run_of(checkpoint.path)
    if folder is None:
        return Link("run", checkpoint.info.run, {}, "the checkpoint lies in no run")
    try:
        manifest = Run(folder).manifest()
    except UserError as error:
        return Link("run", folder.name, {}, str(error))
    details = {"created": manifest.created, "method": manifest.settings.method}
    same = difference(manifest, checkpoint.info) is None
    return Link("run", folder.name, details, None if same else "its manifest is not the checkpoint's")


def _code_link(verb: str, versions: object) -> Link:
    """Return the code as it was recorded, and whether this is the same."""
    known = {str(k): str(v) for k, v in versions.items()} if isinstance(versions, Mapping) else {}
    same = {None: "not recorded", code_version()["source"]: "the same"}.get(known.get("source"), "another")
    return Link("code", verb, {**known, "this code": same})


def _is_analysis(record: object) -> bool:
    claimed = record.get("checkpoint") if isinstance(record, dict) else None
    return isinstance(claimed, dict) and isinstance(claimed.get("sha256"), str)
