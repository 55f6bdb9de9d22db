"""Every command that writes a file which the user names: only where there is none yet, or a regular file.

The commands are read off the command line itself, so that a new one is in the table. None of the runs that
are named exists: a target is refused before anything is read or computed.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from fedscope.cli.main import call
from fedscope.cli.root import main

WRITTEN = {"json_target", "out", "figure"}  # options that name what is written
OUT = {  # arguments with which a command comes to its --out, TARGET
    "plot-landscape": ["none", "--out", "TARGET.png"],
    "plot-hessian": ["none.json", "--out", "TARGET.png"],
    "data plot-partition": ["none", "--out", "TARGET.png"],
    "plot-runs": ["none", "--out", "TARGET.png"],
    "hessian": ["none", "--figure", "TARGET.png"],
    "clients": ["none", "--figure", "TARGET.png"],
    "sharpness": ["none", "--figure", "TARGET.png"],
    "report": ["none", "--out", "TARGET.html"],
    "runs export": ["none", "--out", "TARGET"],
    "figures build": ["man/table1", "--out", "FOLDER:man/table1-cpu.tex"],
    "figures index": ["--out", "FOLDER:README.md"],
    "demo": ["--out", "FOLDER:report.html"],
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.resolve_command(context, [name])[1]  # imported
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def cases() -> Iterator[tuple[str, ...]]:
    for name, command in commands(main):
        options = {parameter.name for parameter in command.params} & WRITTEN
        if "json_target" in options:
            yield name, "--json", "TARGET.json"
        if options - {"json_target"}:
            yield name, *OUT[name]


def device(path: Path) -> None:
    path.symlink_to("/dev/null")  # which needs no rights; a typed link is followed


KINDS: dict[str, Callable[[Path], object]] = {
    "device": device,
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
}
CASES = list(cases())


def _state(path: Path) -> tuple[int, ...]:
    itself = path.lstat()
    return itself.st_mode, itself.st_ino, itself.st_size, itself.st_mtime_ns, path.stat().st_mode


def test_the_table_has_every_command() -> None:
    assert len([case for case in CASES if "--json" in case]) > 15
    assert {case[0] for case in CASES if "--json" not in case} == OUT.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_no_command_writes_over_what_is_no_file(
    case: tuple[str, ...],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *arguments = case
    monkeypatch.chdir(tmp_path)
    what = arguments[-1]
    target = Path(what.partition(":")[2] or what)
    arguments[-1] = "." if what.startswith("FOLDER:") else what
    target.parent.mkdir(exist_ok=True)
    KINDS[kind](target)
    before = _state(target)
    assert call([*name.split(), *arguments]) == 2
    assert f"{target} is a {kind}" in capsys.readouterr().err
    assert _state(target) == before
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
