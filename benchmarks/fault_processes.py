"""Faults of processes, disks and clocks, for `faults.py`: kills, no room, no access, several at once.

Each fault takes a scene and returns the outcome in a word or two; what must not be is noted in the scene.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fault_commands import RESUME, adding, finish, write
from fault_scene import HESSIAN, METHODS, TRAIN, Done, Process, Scene, figures

from fedscope.checkpoints.registry.run_registry import RunRegistry


def killed_training(scene: Scene) -> str:
    """Kill a training at random moments and resume it: the same bits, and no fault but what was left over."""
    method = scene.draw.choice(list(METHODS))
    kills = 0
    for _ in range(scene.draw.randrange(1, 5)):
        process = scene.start(*_training(scene, method))
        time.sleep(scene.draw.uniform(0, 1.2 * scene.clean.seconds))
        process.signal(signal.SIGKILL)
        kills += process.wait().code == -signal.SIGKILL
        scene.expect_sound()
    done = scene.call(*_training(scene, method))
    if done.code:
        scene.wrong(f"not to be resumed: {done.err[-300:]}")
    scene.expect_bits("new", {"plain": "c", "state": "a"}[method])
    scene.expect_sound()
    return "killed, the same bits" if kills else "too late"


def _training(scene: Scene, method: str) -> tuple[str, ...]:
    """Return the command that trains the run `new`, or continues it."""
    begun = (scene.root / "new" / "manifest.json").exists()
    return ("train", "--name", "new", *(("--resume",) if begun else (*TRAIN, *METHODS[method])))


def killed_command(scene: Scene) -> str:
    """Kill any command and give it again: what it had not to do with is as it was."""
    words = write(scene)
    process = scene.start(*words)
    time.sleep(scene.draw.uniform(0, 1) ** 2 * 0.4 * scene.clean.seconds)
    process.signal(signal.SIGKILL)
    code = process.wait().code
    scene.expect_sound()
    again = scene.call(*words)
    if again.code and not any(word in again.err for word in ("taken", "no run", "--resume")):
        scene.wrong(f"not to be done again: {' '.join(words)}: {again.err[-300:]}")
    scene.expect_sound()
    scene.expect_bits("a", "a")
    if words == RESUME:
        scene.expect_bits("b", "b")
    return "killed, done again" if code < 0 else "too late"


def full_disk(scene: Scene) -> str:
    """Fill the disk during any command: it says so, and with room it is done as if nothing had been."""
    words, small = scene.draw.choice(adding(scene)), scene.folder / "disk"
    small.mkdir()
    used = sum(-(-path.stat().st_size // 4096) * 4096 for path in scene.paths())
    size = used + scene.draw.randrange(4096, 160_000)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        return _limited(scene, words)
    try:
        root = Path(shutil.copytree(scene.root, small / "registry", symlinks=True))
        first = scene.call(*words, root=root)
        _expect_told(scene, words, first)
        scene.expect_sound(root=root)
        subprocess.run(["mount", "-o", f"remount,size={size + (1 << 24)}", str(small)], check=True)
        _repeat(scene, words, first, root)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    return "told, then done" if first.code else "it had room"


def file_limit(scene: Scene) -> str:
    """Let no file grow above a limit during any command."""
    return _limited(scene, scene.draw.choice(adding(scene)))


def _limited(scene: Scene, words: tuple[str, ...]) -> str:
    """Let no file grow above a limit, where no disk can be made."""
    most = scene.draw.randrange(500, 16_000)
    first = scene.call(*words, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
    _expect_told(scene, words, first)
    scene.expect_sound()
    _repeat(scene, words, first, scene.root)
    return "told, then done" if first.code else "it had room"


def _expect_told(scene: Scene, words: tuple[str, ...], done: Done) -> None:
    known = ("No space left", "File too large", "make room", "cannot write")
    if done.code and not any(word in done.err for word in known):
        scene.wrong(f"does not tell of the disk: {' '.join(words)}: {done.err[-300:]}")


def _repeat(scene: Scene, words: tuple[str, ...], first: Done, root: Path) -> None:
    """Do again what had no room."""
    if words[0] == "train" and (root / words[2] / "manifest.json").exists() and "--resume" not in words:
        words = ("train", "--name", words[2], "--resume")
    again = scene.call(*words, root=root) if first.code else first
    if again.code:
        scene.wrong(f"not done with room: {' '.join(words)}: {again.err[-300:]}")
    scene.expect_sound(root=root)
    if words == RESUME:
        scene.expect_bits("b", "b", root)


def read_only(scene: Scene) -> str:
    """Take the right to write away from folders: commands end in a line, and no content changes."""
    locked = [scene.root, *(path for path in scene.root.rglob("*") if path.is_dir())]
    if scene.draw.random() < 0.5:
        locked = scene.draw.sample(locked, scene.draw.randrange(1, len(locked)))
    before = {path: path.read_bytes() for path in scene.paths() if path.parent in locked}
    for folder in locked:
        folder.chmod(0o555)
    words = write(scene)
    code = scene.call(*words, before=_unprivileged).code
    scene.call("runs", "list", before=_unprivileged)
    scene.call("runs", "verify", before=_unprivileged)
    for folder in locked:
        with suppress(FileNotFoundError):
            folder.chmod(0o755)
    open_files = ("metrics.jsonl", "index.sqlite")  # appended to, where the file itself may be written
    for path, content in before.items():
        above = [
            folder for folder in path.parents[1:] if folder == scene.root or scene.root in folder.parents
        ]
        moved = not path.parent.exists() and not set(above) <= set(locked)  # it, or one above, was renamed
        if not moved and path.name not in open_files and (not path.exists() or path.read_bytes() != content):
            scene.wrong(f"{' '.join(words)} changed {path.name} in a folder that is not to be written")
    return "refused" if code else "done"


def _unprivileged() -> None:
    """Be bound by the permissions of files, as root is not."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def stale_locks(scene: Scene) -> str:
    """Leave what dead processes leave: nothing waits for them, and the bits are the same."""
    for name in (".a.4711.deleted/final.pt", "b/.last.pt.abcdefgh.tmp", ".new.abcdefgh/manifest.json",
                 "b/state/.round-0009.deleted/x", "a/.manifest.json.zyxwvuts.tmp"):  # fmt: skip
        if scene.draw.random() < 0.6:
            path = scene.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(scene.draw.randbytes(100))
    process = scene.start(*RESUME)
    time.sleep(scene.draw.uniform(0, scene.clean.seconds))
    stopped = scene.draw.random() < 0.5
    process.signal(signal.SIGSTOP if stopped else signal.SIGKILL)
    for words in (("runs", "verify"), write(scene), ("runs", "list")):
        scene.call(*words)
    process.signal(signal.SIGCONT)
    process.wait()
    finish(scene)
    return "went on" if stopped else "taken over"


def clocks(scene: Scene) -> str:
    """Set the clock wrong: when runs were made, and when files were written."""
    draw = scene.draw
    for path in draw.sample(scene.paths(), 5):
        moment = draw.choice((0, 1, 2**31 - 1, 4_000_000_000, time.time() + draw.uniform(-1e6, 1e6)))
        os.utime(path, (moment, moment))
    days = draw.choice((-20000, -400, -1, 0.5, 400, 20000))
    created = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="milliseconds")
    run = RunRegistry(scene.root).run("a")
    run.write_manifest(run.manifest().model_copy(update={"created": created}))
    if scene.faults("a"):
        scene.wrong(f"verify finds a fault in a run created {days:+} days from now")
    answer = scene.call(*HESSIAN)
    if answer.code or figures(answer.json()) != scene.clean.answer:
        scene.wrong(f"hessian answers otherwise, clocks wrong: {answer.err[-300:]}")
    listed = scene.call("runs", "list", "--json", "-").json()
    if listed is None or len(listed) != 3:
        scene.wrong("runs list does not show the three runs")
    if scene.call(*RESUME).code:
        scene.wrong("b is not to be resumed")
    scene.expect_bits("b", "b")
    return "the same"


def writers(scene: Scene) -> str:
    """Start several commands at once: each ends as if it were alone, or says what is taken."""
    several = [write(scene) for _ in range(scene.draw.randrange(3, 6))]
    several += [("train", *TRAIN, *METHODS["plain"])] * 2 + [("runs", "verify")]  # unnamed: each gets a name
    scene.draw.shuffle(several)
    running: list[Process] = []
    for words in several:
        running.append(scene.start(*words))
        time.sleep(scene.draw.uniform(0, 0.2))
    for process, words in zip(running, several, strict=True):
        done = process.wait()
        if done.code and words[0] == "train" and "--name" not in words:
            scene.wrong(f"unnamed training beside others: {done.err[-300:]}")
    scene.expect_sound()
    unnamed = [run.name for run in RunRegistry(scene.root).folders() if run.name.startswith("fedavg-digits")]
    if len(unnamed) != 2:
        scene.wrong(f"two unnamed trainings made {unnamed}")
    for name in unnamed:
        scene.expect_bits(name, "c")
    finish(scene)
    return "all whole"


PROCESSES: dict[str, Callable[[Scene], str]] = {
    "training killed": killed_training,
    "command killed": killed_command,
    "disk full": full_disk,
    "file too large": file_limit,
    "read-only folders": read_only,
    "stale locks and leftovers": stale_locks,
    "clocks wrong": clocks,
    "several writers": writers,
}
