"""All pages that are generated, and the parts of written pages that are."""

from functools import cache
from pathlib import Path

from builder import benchmarks, commands, methods, names, papers, records
from builder.blocks import Blocks


@cache
def blocks(root: Path) -> Blocks:
    """Return the blocks of code of the written pages."""
    return Blocks(root / "docs")


def titles(root: Path) -> dict[str, str]:
    """Return the generated pages by path, with their titles, in the order of the navigation."""
    return {
        **commands.titles(),
        **records.titles(),
        **names.titles(),
        **methods.titles(),
        **papers.titles(root),
    }


@cache
def generated(root: Path) -> dict[str, str]:
    """Return the generated pages by path."""
    return {
        **commands.pages(blocks(root)),
        **records.pages(),
        **names.pages(blocks(root)),
        **methods.pages(root),
    }


def part(root: Path, name: str) -> str:
    """Return what stands in a written page for ``<!-- generated: NAME -->``.

    Raises:
        ValueError: there is no part of that name.
    """
    kind, _, of = name.partition("/")
    makers = {
        "commands": commands.index,
        "records": records.index,
        "names": names.index,
        "methods": methods.index,
        "quantities": records.quantities,
    }
    if kind in makers:
        return makers[kind]()
    if kind == "paper":
        return papers.artefacts(root, of)
    if kind == "benchmarks":
        return benchmarks.part(root, of)
    raise ValueError(f"no generated part is called {name!r}")
