"""The chain from a figure back to its code: figure, analysis, checkpoint, run, data, code.

Each link names the next by hash: a figure's record holds its analyses, an analysis the content hash of its
checkpoint, a checkpoint its settings, the fingerprint of its data and the versions of its code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import VerifiedCheckpoint, describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.code import code_version
from fedscope.checkpoints.file.schema import difference
from fedscope.checkpoints.registry.method_code import is_same, method_code
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.validation import Plain


@dataclass(frozen=True)
class Link:
    """One link of the chain: its kind, its name, its details, and what is wrong with it."""

    kind: str
    name: str
    details: dict[str, str]
    fault: str | None = None


class Claimed(Plain):
    """The checkpoint that an analysis names."""

    sha256: str
    run: str | None = None
    path: str | None = None


class Analysis(Plain):
    """The record of an analysis, as far as it leads to a checkpoint and to code."""

    schema_name: str = Field("", alias="schema")
    checkpoint: Claimed
    problem: dict[str, object] = Field(default_factory=dict)
    versions: dict[str, object] = Field(default_factory=dict)


_ANALYSES = TypeAdapter(Annotated[list[Analysis], Field(min_length=1)])


def checkpoint_links(path: Path) -> Iterator[Link]:
    checkpoint = load_checkpoint(path)
    info = checkpoint.info
    what = f"client {info.client}" + (f", local step {info.step}" if info.step else "")
    what = what if info.kind == "client" else f"global ({info.average})"
    details = {"sha256": checkpoint.sha256, "model": info.model.name, "of": what, "round": str(info.round)}
    yield Link("checkpoint", str(path), details)
    yield from _run_links(checkpoint)
    data = info.data
    samples = {"train": str(data.train_samples), "test": str(data.test_samples)}
    yield Link("data", data.name, {"fingerprint": data.fingerprint, **samples})
    yield _code_link("trained", info.versions)


def record_links(registry: RunRegistry, name: str, content: object) -> Iterator[Link]:
    shown = content.get("analyses") if isinstance(content, dict) else None
    records = content if isinstance(content, list) else [content]
    try:
        analyses = _ANALYSES.validate_python(records if shown is None else shown)
    except ValidationError as error:
        raise UserError(
            f"{name} names no analysis of a checkpoint; give a figure or record of curvature, clients, "
            "sharpness or landscapes: others, as of `plot-runs`, hold the runs that they show, no analysis"
        ) from error
    if shown is not None:
        yield Link("figure", name, {"analyses": str(len(analyses))})
    for analysis in analyses:
        yield Link("analysis", analysis.schema_name, {k: str(v) for k, v in analysis.problem.items()})
        yield _code_link("analysed", analysis.versions)
        claimed = analysis.checkpoint
        path = find(registry, claimed.sha256, claimed.run)
        if path is None:
            missing = f"no checkpoint with this content is in the registry {registry.root}"
            yield Link("checkpoint", str(claimed.path), {"sha256": claimed.sha256}, missing)
            continue
        try:
            yield from checkpoint_links(path)
        except UserError as error:
            yield Link("checkpoint", str(path), {}, str(error))


def find(registry: RunRegistry, sha256: str, run: str | None = None) -> Path | None:
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


def _run_links(checkpoint: VerifiedCheckpoint) -> Iterator[Link]:
    folder = layout.run_of(checkpoint.path)
    if folder is None:
        yield Link("run", checkpoint.info.run, {}, "the checkpoint lies in no run")
        return
    try:
        manifest = RunFolder(folder).manifest()
    except UserError as error:
        yield Link("run", folder.name, {}, str(error))
        return
    details = {"created": manifest.created, "method": manifest.settings.method}
    same = difference(manifest, checkpoint.info) is None
    yield Link("run", folder.name, details, None if same else "its manifest is not the checkpoint's")
    for one in manifest.methods:
        now = method_code(one.method)
        state = "not installed" if now is None else "the same" if is_same(one, now) else "another"
        known = {"package": one.package, "version": one.version, "source": one.source}
        yield Link("method", one.method, {**known, "this code": state})


def _code_link(verb: str, versions: Mapping[str, object]) -> Link:
    known = {name: str(version) for name, version in versions.items()}
    same = {None: "not recorded", code_version()["source"]: "the same"}.get(known.get("source"), "another")
    return Link("code", verb, {**known, "this code": same})
