"""Pushing a run: the files that the remote lacks first, and the list of them last."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.file.formats import REMOTE_FORMAT
from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.travel.folder import Folder
from fedscope.checkpoints.travel.lists import Journey, Report, carry_all, journey, known_list, list_place
from fedscope.checkpoints.travel.remote import Absent, Remote, Tick
from fedscope.checkpoints.verification.verify import check_run
from fedscope.errors import UserError
from fedscope.storage import read_bytes


def push_run(run: RunFolder, remote: Remote, report: Report) -> Journey:
    """Send a run and the results of its models; an earlier state of it at the remote is replaced.

    Models that were deleted here, and results that are not here, stay listed where the remote has them.
    """
    if remote.is_readonly:
        raise UserError(f"{remote.url} can only be pulled from; push to a folder, s3:, gs: or hf:")
    with run.locked(shared=True):
        check_run(run, taken=lambda name: layout.kind(name) is not None)  # other files are not sent
        contents = _listed(run, remote)
        own = {} if contents.in_place else contents.files
        contents = _successor(remote, contents, run.manifest())

        def send(names: Sequence[str], tick: Tick) -> bool:
            name, size = names[0], own[names[0]].bytes
            missing = size > 0 and remote.size(contents.place(name)) != size
            if missing:
                remote.write(contents.place(name), run.at(name), tick)
            return missing

        moved = carry_all(own, remote.workers, send, report)
        remote.write(list_place(run.name), contents.to_bytes(), lambda _: None)
    return journey(run.name, contents, moved)


def _listed(run: RunFolder, remote: Remote) -> Contents:
    """Return the list of a run's files; in a registry that is its own remote, files are not moved."""
    in_place = isinstance(remote, Folder) and remote.root.resolve() == run.root.resolve()
    if in_place and layout.is_run(run.root / "runs"):
        raise UserError(f"{run.root} holds a run named 'runs', where the lists would be; push to another URL")
    manifest = run.manifest()
    names = [name for name in layout.files(run.folder) if layout.kind(name)]
    return Contents(
        format=REMOTE_FORMAT,
        run=run.name,
        files={name: File.from_path(run.at(name)) for name in [*names, *_results(run, manifest, names)]},
        created=manifest.created,
        rounds=sum(1 for _ in run.each_round()),
        in_place=in_place,
    )


def _results(run: RunFolder, manifest: Manifest, names: Sequence[str]) -> Iterator[str]:
    """Yield the registry's results that name a model of the run by its hash, be it one that was deleted."""
    models = [run.at(name) for name in names if layout.kind(name) == "checkpoint"]
    hashes = {*manifest.checkpoints_deleted.values(), *(describe_checkpoint(path)[1] for path in models)}
    for path in sorted((run.root / layout.ANALYSIS).glob("*.json")):
        name = f"{layout.ANALYSIS}/{path.name}"
        with suppress(UserError, OSError):  # such as a link, or one that was removed meanwhile
            if layout.is_result(name) and not hashes.isdisjoint(_hashes(read_bytes(path))):
                yield name


def _hashes(content: bytes) -> set[str]:
    return {found.decode("ascii") for found in re.findall(rb"[0-9a-f]{64}", content)}


def _successor(remote: Remote, contents: Contents, manifest: Manifest) -> Contents:
    """Return the list that replaces the remote's, with what that has of models and results gone here."""
    try:
        there = known_list(remote, contents.run)
    except (Absent, ValueError):  # none, or a damaged one: it is written anew
        return contents
    if there.created != contents.created:
        raise UserError(
            f"{remote.url} holds another run named {contents.run!r}, begun {there.created}; use another URL"
        )
    if there.rounds > contents.rounds:
        raise UserError(
            f"{contents.run!r} has come to round {there.rounds} at {remote.url}, here to {contents.rounds}; "
            "pull that one"
        )
    lacking = {name: file for name, file in there.files.items() if name not in contents.files}
    gone = {n: f for n, f in lacking.items() if n in manifest.checkpoints_deleted or layout.is_result(n)}
    lost = sorted(name for name in lacking.keys() - gone.keys() if layout.kind(name) != "tag")
    if manifest.partial and lost:
        raise UserError(
            f"{contents.run!r} is partial here, without {lost[0]}, which {remote.url} has; pull that one, "
            "or use another URL"
        )
    if contents.in_place:  # the files are here or nowhere
        return contents
    return contents.model_copy(update={"files": {**contents.files, **gone}})
