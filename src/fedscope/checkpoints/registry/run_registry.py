"""The registry: a folder of runs, and a SQLite index of it that can be deleted at any time.

    ROOT/RUN/manifest.json               what the run is, written when it starts
    ROOT/RUN/metrics.jsonl               one line per round
    ROOT/RUN/rows.zz                     which rows of the training set each client holds
    ROOT/RUN/{initial,final,best,last}.pt  global models; {all,sel}.pt: means of clients
    ROOT/RUN/round-0025.pt               under --keep-every; round-0025/{all,sel}.pt: the means beside it
    ROOT/RUN/clients/0003.pt             last uploads; round-0025/clients/0003.pt under --save-clients all
    ROOT/RUN/round-0007/steps/0003/000040.pt  after a client's local steps, under --keep-steps
    ROOT/RUN/round-0007/anchor.pt        what the clients of a round started from whose uploads are kept
    ROOT/RUN/tags/NAME                   an empty file per tag
    ROOT/RUN/{state,latest}/             what a run needs to be resumed, or to get more rounds
    ROOT/index.sqlite                    what `runs list` shows, brought up to date from the files at each use
    ROOT/.analysis/                      results of analyses

A folder without a run is no registry: nothing is written to it until a run is registered there.
A checkpoint is addressed as a file, or as RUN or RUN@WHICH (:mod:`fedscope.checkpoints.registry.addresses`).
"""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import TypeVar

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.fields import NAME, checked_name
from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.registry import index
from fedscope.checkpoints.registry.addresses import addresses, missing, path_of
from fedscope.checkpoints.registry.index import COLUMNS, Row
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError, suggestion
from fedscope.storage import atomic_folder, cache_dir, locked, move, remove_tree, write_bytes

__all__ = ["COLUMNS", "NameTakenError", "Row", "RunFolder", "RunRegistry"]


T = TypeVar("T")
_ELSEWHERE = "name another registry with --registry or FEDSCOPE_REGISTRY"


class NameTakenError(UserError):
    """The name for a new run is taken, by a run or by something else."""


class RunRegistry:
    """The runs below one folder."""

    def __init__(self, root: Path):
        self.root = root

    @property
    def analysis(self) -> Path:
        """Folder of the results: of the registry, or of the user's cache where ``root`` is none yet."""
        any_run = next(layout.runs(self.root), None)
        return self.root / layout.ANALYSIS if any_run else cache_dir() / "analysis"

    def create(self, manifest: Manifest, rows: bytes | None = None) -> RunFolder:
        run = RunFolder(self.root / manifest.name)
        self.check_free(manifest.name)
        try:
            with atomic_folder(run.folder, below=self.root, exclusive=True) as temporary:
                RunFolder(temporary).write_manifest(manifest)
                with locked(
                    temporary / layout.LOCK, below=temporary
                ):  # which makes it, or says that none can
                    pass
                if rows is not None:
                    write_bytes(RunFolder(temporary).rows(), rows, below=temporary)
        except FileExistsError as error:
            raise self._taken(manifest.name) from error
        return run

    def check_free(self, name: str) -> None:
        if os.path.lexists(self.root / checked_name(name)):
            raise self._taken(name)

    def _taken(self, name: str) -> NameTakenError:
        return NameTakenError(
            f"{self.root / name} is taken; choose another --name, or continue a run of that name with "
            "--resume"
        )

    def free_name(self, stem: str, suffixes: Sequence[str] = ("",)) -> str:
        name, count = stem, 1
        while any(os.path.lexists(self.root / f"{name}{suffix}") for suffix in suffixes):
            count += 1
            name = f"{stem}-{count}"
        return name

    def under_free_name(self, stem: str, make: Callable[[str], T], suffixes: Sequence[str] = ("",)) -> T:
        while True:
            name = self.free_name(stem, suffixes)
            try:
                return make(name)
            except NameTakenError:  # another process was quicker
                if self.free_name(name, suffixes) == name:
                    raise

    def matching(self, reference: str) -> list[str]:
        """Return a reference for each run that a pattern as ``fed*@best`` is of; any other text as it is."""
        pattern, at, which = reference.partition("@")
        if not set(pattern) & set("*?[") or Path(reference).exists():
            return [reference]
        names = [run.name for run in self.folders() if fnmatchcase(run.name, pattern)]
        if not names:
            raise UserError(
                f"no run in the registry {self.root} is named like {pattern!r}; `fedscope runs "
                f"list{self.flag}` shows all"
            )
        return [f"{name}{at}{which}" for name in names]

    def has(self, name: str) -> bool:
        return RunFolder(self.root / checked_name(name)).has_manifest

    def run(self, name: str) -> RunFolder:
        run = RunFolder(self.root / name)
        if NAME.fullmatch(name) and (run.has_manifest or layout.is_run(run.folder)):
            return run
        stem, at, _ = name.partition("@")
        if at:
            raise UserError(f"{name} names a checkpoint; name the run alone: {stem or 'RUN'}")
        if name and Path(name).exists():
            self._refuse_folder(Path(name))
            mend = (
                f"`fedscope runs show --provenance {quote(name)}` says what a figure or a record shows"
                if Path(name).suffix.lower() in (".png", ".pdf", ".svg", ".html", ".json")
                else f"`fedscope runs add {quote(name)} --model NAME --dataset NAME` registers another "
                "program's checkpoint"
            )
            raise UserError(f"{name} is no run of the registry {self.root}; {mend}")
        runs = [run.name for run in self.folders()]
        holds = "it holds none" if self.root.is_dir() else "that is no folder"
        more = f"`fedscope runs list{self.flag}` shows all" if runs else f"{holds}; {_ELSEWHERE}"
        hint = suggestion(name, runs) or f"; {more}"
        raise UserError(f"there is no run {name!r} in the registry {self.root}{hint}")

    @property
    def flag(self) -> str:
        """What names this registry in a command that is to be typed; empty where none need be."""
        usual = os.environ.get("FEDSCOPE_REGISTRY", "checkpoints")
        return "" if Path(usual) == self.root else f" --registry {quote(str(self.root))}"

    def folders(self) -> list[RunFolder]:
        """Return every run, also one whose manifest is damaged or lost."""
        return [RunFolder(self.root / name) for name in layout.runs(self.root)]

    def existing(self) -> list[RunFolder]:
        runs = self.folders()
        if not runs:
            what = "holds no run" if self.root.is_dir() else "is no folder"
            raise UserError(
                f"{self.root} {what}; name a registry's folder by --registry, or train a run there"
            )
        return runs

    def newest(self) -> RunFolder:
        rows, _ = self.newest_rows(1)
        if not rows:
            raise UserError(
                f"the registry {self.root} holds no run yet; `fedscope train` makes one, or {_ELSEWHERE}"
            )
        return RunFolder(self.root / str(rows[0]["name"]))

    def resolve(self, reference: str | None) -> Path:
        """Return the checkpoint file that ``reference`` names; without one, the newest run's."""
        if reference is None:
            return self._checkpoint(self.newest(), "")
        if Path(reference).is_file():
            return Path(reference)
        if Path(reference).is_dir() and not layout.is_run(self.root / reference):
            self._refuse_folder(Path(reference))
            raise UserError(
                f"{reference} is a folder, not a run of the registry {self.root}; register it with `fedscope "
                "runs add`, name a file in it, or add --model and --data for one as Hugging Face writes it"
            )
        if reference.endswith(".pt") or "/" in reference:
            raise UserError(f"no such file: {reference}; `fedscope runs list` shows what the registry holds")
        name, at, which = reference.partition("@")
        if not name or (at and not which):
            raise UserError(f"{reference!r} is half of RUN@WHICH; use RUN, RUN@best, RUN@25 or RUN@client3")
        return self._checkpoint(self.run(name), which)

    def _refuse_folder(self, folder: Path) -> None:
        """Refuse the folder of a run, which is named by its name alone."""
        if layout.is_run(folder):
            elsewhere = folder.resolve().parent != self.root.resolve()
            there = f" --registry {quote(str(folder.parent))}" if elsewhere else ""
            raise UserError(f"{folder} is the folder of a run; name the run: {quote(folder.name)}{there}")

    def _checkpoint(self, run: RunFolder, which: str) -> Path:
        path = path_of(run, which)
        if path is None:
            hint = (
                suggestion(which, addresses(run)).replace("'", f"'{run.name}@", 1)
                or "; use @best, @final, @initial, @25, @25:all, @client3 or @25:client3:step40"
            )
            raise UserError(f"unknown checkpoint {run.name}@{which}{hint}")
        if not path.exists():
            raise UserError(missing(run, which, path))
        return path

    def rows(self) -> list[Row]:
        return index.rows(self.root)[0]

    def newest_rows(self, most: int | None, report: index.Report | None = None) -> tuple[list[Row], int]:
        return index.rows(self.root, most, report)

    def without_index(self) -> str | None:
        return index.not_ours(self.root)

    def rebuild(self) -> list[Row]:
        self.existing()
        return index.rebuild(self.root)

    def delete(self, run: RunFolder) -> None:
        """Delete a run: its name is free at once, even if removing its files is interrupted."""
        files = (run.folder / name for name in layout.files(run.folder) if layout.kind(name) is None)
        inner = next(
            (file.parent for file in files if file.parent != run.folder and layout.is_run(file.parent)), None
        )
        if inner:
            raise UserError(f"{inner} is another run; move it out of {run.name} first, or delete it there")
        hidden = run.folder.with_name(f".{run.name}.{os.getpid()}.deleted")
        with run.locked() if run.has_manifest else nullcontext():
            move(run.folder, hidden, below=self.root)
        remove_tree(hidden, below=self.root)
