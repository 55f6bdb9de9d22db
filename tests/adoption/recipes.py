"""The code of the documentation's pages, to be run by tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builder.blocks import Blocks

DOCS = Path(__file__).parents[2] / "docs"


def recipe(page: str, file: str) -> Any:
    """Return what a block that is a file of a page defines."""
    (code,) = (block.code for block in Blocks(DOCS).all if (block.page, block.name) == (page, file))
    names: dict[str, Any] = {"__name__": file.removesuffix(".py")}
    exec(compile(code, f"{page}:{file}", "exec"), names)
    return SimpleNamespace(**names)
