"""Pushing a run: the files that the remote lacks first, and the list of them last."""

from collections.abc import Sequence

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.formats import REMOTE_FORMAT
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run import Run
from fedscope.checkpoints.travel.folder import Folder
from fedscope.checkpoints.travel.lists import Journey, Report, carry_all, journey, known_list, list_place
from fedscope.checkpoints.travel.remote import Absent, Remote, Tick
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError


def push_run(run: Run, remote: Remote, report: Report) -> Journey:
    """Send a run; an earlier state of it at the remote is replaced.

    Raises:
        UserError: the run is being trained or has a fault, another run of its name is at the remote, it
            has come further there or is partial here alone, or the remote cannot be written.
    """
    with run.locked(shared=True):
        _check_sound(run)
        contents = _listed(run, remote)
        _check_successor(remote, contents, partial=run.manifest().partial)

        def send(names: Sequence[str], tick: Tick) -> bool:
            name, size = names[0], contents.files[names[0]].bytes
            missing = size > 0 and remote.size(contents.place(name)) != size
            if missing:
                remote.write(contents.place(name), run.folder / name, tick)
            return missing

        moved = [] if contents.in_place else carry_all(contents, remote.workers, send, report)
        remote.write(list_place(run.name), contents.to_bytes(), lambda: None)
    return journey(run.name, contents, moved)


def _check_sound(run: Run) -> None:
    """Refuse a run with a fault in its files; other files in its folder are not sent."""
    for fault in verify_run(run):
        name = fault.path.partition("/")[2]
        if not name or layout.kind(name):
            raise UserError(f"{fault.path} {fault.problem}; `fedscope runs verify {run.name}` shows all")


def _listed(run: Run, remote: Remote) -> Contents:
    """Return the list of a run's files; in a registry that is its own remote, files are not moved."""
    root = run.folder.parent
    in_place = isinstance(remote, Folder) and remote.root.resolve() == root.resolve()
    if in_place and layout.is_run(root / "runs"):
        raise UserError(f"{root} holds a run named 'runs', where the lists would be; push to another URL")
    names = [name for name in layout.files(run.folder) if layout.kind(name)]
    return Contents(
        format=REMOTE_FORMAT,
        run=run.name,
        files={name: File.from_path(run.folder / name) for name in names},
        created=run.manifest().created,
        rounds=sum(1 for _ in run.each_round()),
        in_place=in_place,
    )


def _check_successor(remote: Remote, contents: Contents, *, partial: bool) -> None:
    """Refuse to replace another run, one that has more rounds, or by a ``partial`` one what that lacks."""
    try:
        there = known_list(remote, contents.run)
    except (Absent, ValueError):  # none, or a damaged one: it is written anew
        return
    if there.created != contents.created:
        raise UserError(
            f"{remote.url} holds another run named {contents.run!r}, begun {there.created}; use another URL"
        )
    if there.rounds > contents.rounds:
        raise UserError(
            f"{contents.run!r} has come to round {there.rounds} at {remote.url}, here to {contents.rounds}; "
            "pull that one"
        )
    lacking = sorted(n for n in there.files.keys() - contents.files.keys() if layout.kind(n) != "tag")
    if partial and lacking:
        raise UserError(
            f"{contents.run!r} is partial here, without {lacking[0]}, which {remote.url} has; pull that one, "
            "or use another URL"
        )
