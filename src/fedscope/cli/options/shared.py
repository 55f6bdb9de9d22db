"""Options that several commands share, and sizes of memory as they are given, such as 8G."""

import os
import re
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fedscope.errors import UserError
from fedscope.storage import check_target

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

registry = click.option(
    "--registry",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("checkpoints"),
    envvar="FEDSCOPE_REGISTRY",
    show_default=True,
    help="Folder of the runs (or FEDSCOPE_REGISTRY).",
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of data sets, each under its name, or of one set's files (or FEDSCOPE_DATA).",
)


def flags_given(context: click.Context) -> dict[str, str]:
    """Return what was given on the command line: the parameters' names, each with its flag."""
    return {
        str(param.name): param.opts[0]
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }


def is_film(target: str | None) -> bool:
    """Say whether a file that is to be drawn is a film."""
    return Path(target or "").suffix.lower() == ".gif"


def writable(_context: click.Context, _option: click.Parameter, target: T) -> T:
    """Return the file that an option names, if it can be written: said before the work, not after it."""
    if target not in (None, "-"):
        check_target(Path(str(target)))
    return target


def out(default: str, help: str, *, numbered: bool = True) -> Decorator:
    """Return the option ``--out`` of a file: ``default`` unless named, ``numbered`` where that is there."""
    shown = f"{default}, or with a number where that is there" if numbered else True
    callback = _new_or_named if numbered else writable
    return click.option(
        "--out", default=default, show_default=shown, metavar="FILE", callback=callback, help=help
    )


def _new_or_named(context: click.Context, option: click.Parameter, target: str) -> str:
    if context.get_parameter_source(str(option.name)) is ParameterSource.DEFAULT:
        path = Path(target)
        numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
        target = str(next(free for free in chain([path], numbered) if not os.path.lexists(free)))
    return writable(context, option, target)


picture = partial(out, help="A .png, .pdf or .svg file.")
json_target = click.option(
    "--json",
    "json_target",
    metavar="FILE",
    callback=writable,
    help="Print JSON, or write it to FILE (.json).",
)
device = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1…")
threads = click.option(
    "--threads",
    type=click.IntRange(1),
    help="CPU threads; the bits depend on them. [default: all cores; one where a batch is little work]",
)


class Seeds(click.ParamType[tuple[int, ...]]):
    """Different whole numbers, with commas between them."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", value):
            self.fail(f"takes seeds such as 0,1,2, not {value!r}", param, ctx)
        seeds = tuple(map(int, value.split(",")))
        if len(set(seeds)) < len(seeds):
            self.fail(f"has a seed twice: {value}", param, ctx)
        return seeds


SEEDS = Seeds()


LEAST_MEMORY = 64 << 20  # bytes: no measurement takes less
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str) -> int:
    """Return the bytes of a size such as 8G, 512M or 1.5T (powers of 1,024)."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise UserError(f"{text!r} is no size of memory; give one such as 8G or 512M")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < LEAST_MEMORY:
        unit = "" if found[2] else ", which is in bytes without a unit"
        raise UserError(
            f"--memory {text} is too little for any measurement{unit}; give one such as 8G or 512M, "
            f"{LEAST_MEMORY >> 20}M at least"
        )
    return size
