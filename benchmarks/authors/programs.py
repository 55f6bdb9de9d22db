"""The table of programs and methods, and how a program is got, mended and imported."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

TABLE = Path(__file__).with_name("rows.toml")


@dataclass(frozen=True)
class Program:
    """A public program: where it is, and what of it is used."""

    name: str
    repository: str
    commit: str
    licence: str
    files: list[str]  # that are copied; folders with all that is in them
    adapter: str  # what runs it: a module of ``adapters``, and a function of it that is not ``run``
    folder: str = "."  # in which it runs, below its root
    stubs: list[str] = field(default_factory=list)  # modules it imports and does not need for a round
    everywhere: dict[str, str] = field(default_factory=dict)  # text → its replacement in all files


@dataclass(frozen=True)
class Patch:
    """A replacement of text in a file of a program."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Row:
    """One comparison: a method of fedscope beside what a program calls by the name ``entry``."""

    method: str
    program: str
    entry: str
    variant: str = ""  # what tells it from another row of the two
    reading: str = "paper"
    options: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)  # that end a difference, and so prove its cause
    why: str = ""  # what differs, whose it is, and what the patches do


@dataclass(frozen=True)
class Table:
    """All programs and comparisons, and the methods that no program was found for."""

    programs: dict[str, Program]
    rows: list[Row]
    absent: dict[str, str]  # method → what it is compared with instead


def read(path: Path = TABLE) -> Table:
    """Return the table of a file.

    Raises:
        ValueError: a row names a program that the table does not have.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    programs = {name: Program(name=name, **fields) for name, fields in content["programs"].items()}
    rows = []
    for fields in content.get("rows", ()):
        patches = [Patch(**patch) for patch in fields.pop("patches", ())]
        rows.append(Row(**fields, patches=patches))
    for row in rows:
        if row.program not in programs:
            raise ValueError(f"{row.method}: the table has no program {row.program!r}")
    return Table(programs, rows, content.get("absent", {}))


def clone(program: Program, folder: Path) -> Path:
    """Return the folder of the program's repository below ``folder``, cloned if it is not there."""
    root = folder / program.repository.rpartition("/")[2]
    if not root.exists():
        git = ["git", "-C", str(root)]
        subprocess.run(["git", "clone", "--quiet", program.repository, str(root)], check=True)
        subprocess.run([*git, "checkout", "--quiet", program.commit], check=True)
    return root


def copied(program: Program, root: Path, patches: list[Patch], to: Path) -> Path:
    """Copy the files of a program that are used, mended; return the folder in which it runs.

    Raises:
        ValueError: a patch's text stands in its file not once.
    """
    for name in program.files:
        source, target = root / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    for file in to.rglob("*.py") if program.everywhere else ():
        text = file.read_text(encoding="utf-8")
        for old, new in program.everywhere.items():
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    for patch_ in patches:
        file = to / patch_.file
        text = file.read_text(encoding="utf-8")
        if text.count(patch_.old) != 1:
            raise ValueError(
                f"{program.name}: {patch_.file} has {patch_.old!r} {text.count(patch_.old)} times"
            )
        file.write_text(text.replace(patch_.old, patch_.new), encoding="utf-8")
    return to / program.folder


class Nothing:
    """What a program makes of a stub: it takes any arguments and has any method, which does nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Stub(ModuleType):
    """A module that a program imports and never needs: any name in it is an empty class."""

    __all__: tuple[str, ...] = ()

    def __init__(self, name: str):
        super().__init__(name)
        self.__spec__, self.__path__ = ModuleSpec(name, None), []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (Nothing,), {})


@contextmanager
def running(folder: Path, stubs: list[str]) -> Iterator[None]:
    """Let a program in ``folder`` be imported and run on the processor in float64, silently.

    Its modules, and what it changed in torch, are gone afterwards.
    """
    own = {entry.name.removesuffix(".py") for entry in folder.iterdir()}
    names = own | {stub.partition(".")[0] for stub in stubs}
    before = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in names}
    for name in before:
        del sys.modules[name]
    sys.modules.update({name: Stub(name) for name in stubs})
    paths, where, dtype = list(sys.path), Path.cwd(), torch.get_default_dtype()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    torch.set_default_dtype(torch.float64)
    try:
        with ExitStack() as stack:
            for change in _on_the_processor():
                stack.enter_context(change)
            stack.enter_context(torch.random.fork_rng(devices=()))
            stack.enter_context(warnings.catch_warnings(action="ignore"))
            nowhere = stack.enter_context(Path(os.devnull).open("w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
            yield
    finally:
        torch.set_default_dtype(dtype)
        os.chdir(where)
        sys.path[:] = paths
        for name in [n for n in sys.modules if n.partition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(before)
        importlib.invalidate_caches()


def _on_the_processor() -> list[Any]:
    """Return the changes of torch that keep a program in float64 and off a GPU."""

    def here(self: Any, *_: object, **__: object) -> Any:
        return self

    return [
        patch.object(Tensor, "cuda", here),
        patch.object(nn.Module, "cuda", here),
        patch.object(Tensor, "float", Tensor.double),
        patch.object(torch, "float32", torch.float64),
        patch.object(torch, "float", torch.float64),
        patch.object(torch.cuda, "manual_seed", lambda *_: None),
    ]


def clipping_at(clip: float | None) -> Any:
    """Return the change of torch by which a program clips at the problem's norm, whatever its own is."""
    real: Callable[..., Tensor] = nn.utils.clip_grad_norm_

    def clipped(parameters: Any, *_: object, **__: object) -> Tensor:
        return real(parameters, clip if clip is not None else float("inf"))

    return patch.object(nn.utils, "clip_grad_norm_", clipped)
