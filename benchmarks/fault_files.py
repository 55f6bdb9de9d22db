"""Faults of files, for `faults.py`: damage, pipes and devices, links.

Each fault takes a scene and returns the outcome in a word or two; what must not be is noted in the scene.
"""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from fault_commands import RESUME, write
from fault_scene import HESSIAN, Scene, figures

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.errors import UserError

SPOTS = {  # where a link is planted, and to what beside the registry
    ".analysis/products": "thesis", ".analysis": "thesis", "index.sqlite": "victim.db",
    "index.sqlite-journal": "notes.txt", "a/tags": "thesis", "a/tags/seen": "notes.txt", "b/state": "thesis",
    "b/latest": "empty", "b/last.pt": "notes.txt", "b/metrics.jsonl": "notes.txt",
    "b/manifest.json": "notes.txt", "b/clients": "empty", "b/final.pt": "new.pt", "b/tensorboard": "thesis",
    "b/round-0003/clients": "thesis", "b/.x.abcdefgh.tmp": "thesis", "c": "run", "c/clients": "thesis",
    "p": "empty", "new": "run",
}  # fmt: skip


def truncated(scene: Scene) -> str:
    """Cut a file short."""
    return _damaged(scene, lambda content: content[: scene.draw.randrange(len(content))])


def flipped(scene: Scene) -> str:
    """Turn one to eight bits of a file."""

    def turn(content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(scene.draw.choice((1, 1, 8))):
            changed[scene.draw.randrange(len(changed))] ^= 1 << scene.draw.randrange(8)
        return bytes(changed)

    return _damaged(scene, turn)


def swapped(scene: Scene) -> str:
    """Put one file's content in the place of another's."""
    other = scene.draw.choice(scene.paths()).read_bytes()
    return _damaged(scene, lambda content: other)


def _damaged(scene: Scene, change: Callable[[bytes], bytes]) -> str:
    """Damage one file: verify names it, or it holds what it held; no command answers otherwise."""
    path = scene.draw.choice([path for path in scene.paths() if path.stat().st_size])
    before, name = path.read_bytes(), path.relative_to(scene.root).as_posix()
    held = _held(path)
    changed = change(before)
    path.write_bytes(changed)
    faults = scene.faults()
    named = any(fault in name or name.startswith(fault) or name in fault for fault in faults)
    counts = not name.startswith((".analysis", "index.sqlite"))  # those are made anew
    if counts and not named and _held(path) != held and changed.rstrip(b"\n") != before.rstrip(b"\n"):
        state = [f for f in faults if Path(f).parent == Path(name).parent]
        if not state:
            scene.wrong(f"verify does not name {name}: {faults}")
    answer = scene.call(*HESSIAN)
    record = answer.json() if answer.code == 0 else None
    of_another = named and record and record["checkpoint"]["sha256"] != scene.clean.bits["a"]
    if record and not of_another and figures(record) != scene.clean.answer:
        scene.wrong(f"hessian answers otherwise, {name} damaged")
    scene.call("runs", "show", "a")
    scene.call("runs", "list")
    if scene.call("runs", "push", "a", f"file:{scene.out}/back").code == 0:
        scene.call("runs", "pull", "a", f"file:{scene.out}/back", "--name", "back")
        scene.expect_bits("back", "a")
    resumed = scene.call(*RESUME)
    if resumed.code == 0:
        scene.expect_bits("b", "b")
    return "named" if named else "harmless"


def _held(path: Path) -> object:
    """Return what a file says to its readers: of a checkpoint, the weights and the description."""
    try:
        loaded = load_checkpoint(path)
    except (UserError, OSError):
        return path.read_bytes()
    return loaded.sha256, loaded.info.model_copy(update={"run": ""})  # runs of the same settings are equal


def special_files(scene: Scene) -> str:
    """Put pipes, sockets, devices and folders in the place of files and beside them: nothing hangs."""
    targets = [*scene.paths(), scene.root / "x.pt", scene.root / "d" / "manifest.json",
               scene.root / ".analysis" / "recipes" / "x.json", scene.root / "a" / "tags" / "t"]  # fmt: skip
    path = scene.draw.choice(targets)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    kind = make_special(scene, path)
    for words in (("runs", "list"), ("runs", "verify"), write(scene), ("runs", "show", "a"), RESUME):
        scene.call(*words)
    return kind


def special_outs(scene: Scene) -> str:
    """Write a result to a pipe, a socket, a device or a folder: it stays what it is."""
    path = scene.out / "target.json"
    kind = make_special(scene, path)
    before = path.lstat()
    words = scene.draw.choice(
        [
            ("runs", "export", "a", "--format", "state_dict", "--out", str(path)),
            ("runs", "export", "a", "--format", "config", "--out", str(path)),
            (*HESSIAN[:-1], str(path)),
            ("runs", "list", "--json", str(path)),
        ]
    )
    code = scene.call(*words).code
    after = path.lstat()
    if (before.st_mode, before.st_ino, before.st_rdev) != (after.st_mode, after.st_ino, after.st_rdev):
        scene.wrong(f"{' '.join(words)} replaced a {kind}")
    return f"{kind} kept" if code else f"{kind} written to"


def make_special(scene: Scene, path: Path) -> str:
    """Make something that is no regular file at ``path``."""
    kind = scene.draw.choice(["pipe", "socket", "folder", *(["device"] if os.geteuid() == 0 else [])])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, scene.draw.choice((3, 5, 7))))  # null, zero, full
    else:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's name is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
        os.chdir(here)
    return kind


def links(scene: Scene) -> str:
    """Plant links out of the registry, and give commands that write: what they point to stays."""
    for spot in scene.draw.sample(sorted(SPOTS), scene.draw.randrange(1, 4)):
        path = scene.root / spot
        if any(parent.is_symlink() for parent in path.parents):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(scene.outside / SPOTS[spot], target_is_directory=True)
    codes = [scene.call(*words).code for words in (write(scene), write(scene), ("runs", "verify"), RESUME)]
    return "refused" if any(codes) else "done"


FILES: dict[str, Callable[[Scene], str]] = {
    "file cut short": truncated,
    "bits turned": flipped,
    "files swapped": swapped,
    "pipes, sockets, devices, folders": special_files,
    "results to pipes and devices": special_outs,
    "links out of the registry": links,
}
