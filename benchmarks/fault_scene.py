"""The place of one trial of `faults.py`: a registry, a tree beside it that must not change, and commands.

Each command runs in a process of its own, forked from one that has imported torch; what it says and how it
ends is judged the same way whatever was done to the registry.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import run

PATIENCE = 300.0  # seconds; what takes longer hangs
CODES = (0, 2, 130, -signal.SIGKILL)
TRAIN = (
    "--dataset", "digits", "--model", "mlp_digits", "--clients", "3", "--participation", "0.7", "--rounds",
    "3", "--epochs", "1", "--train-samples", "60", "--test-samples", "50", "--save-clients", "all",
    "--keep-every", "2",
)  # fmt: skip
STATE = ("--method", "scaffold", "--eval-model", "all")
METHODS = {"plain": ("--method", "fedavg"), "state": (*STATE, "--validation", "0.1")}
HESSIAN = ("hessian", "a", "--samples", "40", "--probes", "2", "--json", "-")
LEFT_OVER = "left over"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return what it printed as JSON; nothing where it printed none."""
        with suppress(ValueError):
            return json.loads(self.out)
        return None


@dataclass
class Process:
    """A running command, the leader of a session."""

    scene: "Scene"
    pid: int
    words: Sequence[str]
    number: int

    def signal(self, what: int) -> None:
        """Send it a signal, with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, what)

    def wait(self) -> Done:
        """Return how it ended, and note what must not be."""
        end, hung = time.monotonic() + PATIENCE, False
        while not (ended := os.wait4(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > end and not hung:
                hung = True
                self.signal(signal.SIGKILL)
            time.sleep(0.003)
        usage = ended[2]
        self.scene.spent += usage.ru_utime + usage.ru_stime
        code = os.waitstatus_to_exitcode(ended[1])
        said = [self.scene.said(self.number, name) for name in ("out", "err")]
        out, err = (path.read_text("utf-8", "replace") if path.exists() else "" for path in said)
        command = " ".join(self.words)
        if hung:
            self.scene.wrong(f"hangs: {command}")
        elif code not in CODES:
            self.scene.wrong(f"exit code {code}: {command}: {err[-300:]}")
        if "Traceback" in out + err:
            self.scene.wrong(f"traceback: {command}: {err[-600:]}")
        return Done(code, out, err)


@dataclass
class Scene:
    """One trial: ``root`` is the registry, ``outside`` what nothing may touch."""

    folder: Path
    draw: random.Random
    clean: "Clean"
    spent: float = 0.0  # seconds of processor time of the commands
    problems: list[str] = field(default_factory=list)
    commands: int = 0
    mounted: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("home", "tmp", "said", "out"):
            (self.folder / name).mkdir(parents=True)
        shutil.copytree(self.clean.root, self.root, symlinks=True)
        plant(self.outside)
        self.before = fingerprint(self.outside)

    @property
    def root(self) -> Path:
        """The registry."""
        return self.folder / "registry"

    @property
    def outside(self) -> Path:
        """The tree beside it."""
        return self.folder / "outside"

    @property
    def out(self) -> Path:
        """Where commands may write besides."""
        return self.folder / "out"

    def said(self, number: int, name: str) -> Path:
        """Return the file of a command's output."""
        return self.folder / "said" / f"{number}.{name}"

    def wrong(self, problem: str) -> None:
        """Note a violation."""
        self.problems.append(problem)

    def start(
        self, *words: str, root: Path | None = None, before: Callable[[], object] = lambda: None
    ) -> Process:
        """Start ``fedscope words`` on the registry; ``before`` is called in its process."""
        self.commands += 1
        number = self.commands
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._become(words, number, root or self.root, before)
        return Process(self, pid, words, number)

    def call(
        self, *words: str, root: Path | None = None, before: Callable[[], object] = lambda: None
    ) -> Done:
        """Run ``fedscope words`` to its end."""
        return self.start(*words, root=root, before=before).wait()

    def _become(self, words: Sequence[str], number: int, root: Path, before: Callable[[], object]) -> None:
        code = 1
        try:
            os.setsid()
            os.chdir(self.out)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for target, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.said(number, name), os.O_WRONLY | os.O_CREAT, 0o600), target)
            sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
            os.environ |= {
                "HOME": str(self.folder / "home"),
                "TMPDIR": str(self.folder / "tmp"),
                "FEDSCOPE_CACHE": str(self.folder / "home" / "cache"),
                "FEDSCOPE_REGISTRY": str(root),
            }
            before()
            run(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:  # never back into the campaign, not even where there is no room to say so
            try:
                sys.stdout.flush()
            finally:
                os._exit(code)

    def faults(self, *runs: str, root: Path | None = None) -> dict[str, str]:
        """Return what `runs verify` finds, by path."""
        found = self.call("runs", "verify", *runs, "--json", "-", root=root).json()
        return {one["path"]: one["problem"] for one in found["faults"]} if found else {"": "no answer"}

    def expect_sound(self, *runs: str, root: Path | None = None) -> None:
        """Note every fault but what a killed process left over."""
        for path, problem in self.faults(*runs, root=root).items():
            if LEFT_OVER not in problem:
                self.wrong(f"verify: {path}: {problem}")

    def expect_bits(self, name: str, of: str, root: Path | None = None) -> None:
        """Note a final model that is not the undisturbed run's."""
        path = (root or self.root) / name / "final.pt"
        if not path.exists() or describe_checkpoint(path)[1] != self.clean.bits[of]:
            self.wrong(f"{name} ended with other bits than {of}")

    def paths(self) -> list[Path]:
        """Return the registry's files, in order."""
        return [self.root / name for name in layout.files(self.root) if not (self.root / name).is_symlink()]

    def close(self) -> None:
        """Compare what must not have changed, and remove the scene."""
        for path, changed in difference(self.before, fingerprint(self.outside)):
            self.wrong(f"outside the registry {changed}: {path}")
        known = {"home", "tmp", "said", "out", "registry", "outside", "disk"}
        for entry in self.folder.iterdir():
            if entry.name not in known:
                self.wrong(f"outside the registry made: {entry.name}")
        shutil.rmtree(self.folder, onerror=_by_force)


@dataclass(frozen=True)
class Clean:
    """A registry that nothing was done to, and what its commands answer."""

    root: Path
    remote: Path
    weights: Path  # of another program
    bits: dict[str, str]  # the hash of each run's final model
    answer: Any  # of `hessian a`
    seconds: float  # that a training takes

    @classmethod
    def made(cls, folder: Path) -> "Clean":
        """Train the runs: `a` is finished, `b` unfinished, `c` to be deleted."""
        empty = cls(folder / "none", folder / "remote", folder / "w.pt", {}, None, 0.0)
        empty.root.mkdir(parents=True)
        scene = Scene(folder / "scene", random.Random(0), empty)
        for name, method in (("a", "state"), ("b", "state"), ("c", "plain")):
            began = time.monotonic()
            assert scene.call("train", "--name", name, *TRAIN, *METHODS[method]).code == 0, scene.problems
        seconds = time.monotonic() - began
        bits = {n: describe_checkpoint(scene.root / n / "final.pt")[1] for n in ("a", "c")}
        more = scene.folder / "more"
        shutil.copytree(scene.root, more)
        assert scene.call("train", "--name", "b", "--resume", "--rounds", "5", root=more).code == 0
        bits["b"] = describe_checkpoint(more / "b" / "final.pt")[1]
        shutil.rmtree(more)
        RunRegistry(scene.root).run("b").extend(5)
        answer = scene.call(*HESSIAN).json()
        assert scene.call("runs", "list").code == 0
        weights = ("--format", "state_dict", "--out", str(empty.weights))
        assert scene.call("runs", "export", "c", *weights).code == 0
        assert scene.call("runs", "push", "a", f"file:{empty.remote}").code == 0
        assert not scene.problems
        shutil.move(scene.root, folder / "clean")
        return replace(empty, root=folder / "clean", bits=bits, answer=figures(answer), seconds=seconds)


def figures(answer: Any) -> Any:
    """Return the numbers of a Hessian's record that do not depend on when and where it was made."""
    known = ("lambda_max", "eigenvalues", "trace", "cross_client", "matvecs")
    return {key: answer.get(key) for key in known} if isinstance(answer, dict) else None


def plant(folder: Path) -> None:
    """Make the tree that must not change: old files, a database, a foreign run."""
    (folder / "thesis" / "old").mkdir(parents=True)
    (folder / "thesis" / "old" / "chapter.tex").write_text("years of work\n")
    (folder / "notes.txt").write_text("notes\n")
    (folder / "empty").mkdir()
    (folder / "run").mkdir()
    (folder / "run" / "final.pt").write_bytes(b"fedscope/checkpoint/2" + bytes(2000))
    with closing(sqlite3.connect(folder / "victim.db")) as base, base:
        base.execute("CREATE TABLE accounts (name, money)")
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (1_600_000_000, 1_600_000_000))


def fingerprint(folder: Path) -> dict[str, str]:
    """Return what can be told of each entry below a folder, and of itself."""
    return {str(path.relative_to(folder)): _print(path) for path in [folder, *sorted(_below(folder))]}


def _below(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))


def _print(path: Path) -> str:
    status = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    told = (status.st_mode, status.st_uid, status.st_rdev, status.st_mtime_ns, status.st_ino)
    return f"{told} {hashlib.sha256(content).hexdigest()}"


def difference(before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what was made, removed or changed."""
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield path, "made" if path not in before else "removed" if path not in after else "changed"


def _by_force(function: Callable[..., object], path: str, _: object) -> None:
    Path(path).parent.chmod(0o755)
    with suppress(IsADirectoryError, PermissionError):
        Path(path).chmod(0o755)
    function(path)
