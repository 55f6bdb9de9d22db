"""The code of the pages runs as printed: a page in a folder of its own, those of the tutorial in one."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest
from builder.blocks import Block, Blocks, blocks_of
from builder.pages import titles

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIAL = ["tutorial/train.md", "tutorial/measure.md", "tutorial/draw.md", "tutorial/own.md"]
RUN = ("sh", "python")


def units() -> dict[str, list[Block]]:
    """The blocks that run in one folder: of a page, or of the whole tutorial."""
    found = {page: list(blocks) for page, blocks in groupby(Blocks(DOCS).all, key=lambda block: block.page)}
    tutorial = [block for page in TUTORIAL for block in found.pop(page)]
    found["tutorial"] = tutorial
    return {unit: blocks for unit, blocks in found.items() if any(one.language in RUN for one in blocks)}


def blocks(page: Path, language: str) -> list[str]:
    found = blocks_of(page.read_text(encoding="utf-8"))
    return [block.code for block in found if block.language == language]


def install(page: Iterable[Block], folder: Path) -> None:
    """Write the files that blocks are, and what an installer would make of a pyproject.toml, into ``folder``."""
    for block in page:
        if block.name:
            (folder / block.name).write_text(block.code, encoding="utf-8")
    if not (folder / "pyproject.toml").exists():
        return
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    record = folder / f"{project['name']}-{project['version']}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in project["entry-points"].items()
    ]
    (record / "entry_points.txt").write_text("\n".join(points))


def commands(page: list[Block], folder: Path) -> Iterable[str]:
    """Yield the lines of a shell that run the blocks in their order; a file that another block names is its."""
    for number, block in enumerate(page):
        if block.language == "sh":
            yield block.code
        elif block.language == "python" and not is_named(block, page):
            file = block.name or f"block_{number}.py"
            (folder / file).write_text(block.code, encoding="utf-8")
            yield f"python {file}"


def is_named(block: Block, page: list[Block]) -> bool:
    """Say whether another block runs a block, or imports it."""
    if block.name is None:
        return False
    module = block.name.removesuffix(".py")
    used = re.compile(rf"\b{module}\.py\b|\b{module}:\w|^(?:from|import) {module}\b", re.MULTILINE)
    return any(used.search(other.code) for other in page if other is not block)


@pytest.mark.slow
@pytest.mark.parametrize("unit", units())
def test_the_code_runs(unit: str, tmp_path: Path, programs: Path) -> None:
    page = units()[unit]
    install(page, tmp_path)
    lines = list(commands(page, tmp_path))
    path = f"{programs}:{Path(sys.executable).parent}"
    script = "\n".join(["set -e", f"PATH={path}:$PATH", f"export PYTHONPATH={tmp_path}", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_block_is_run_or_says_that_it_is_text(page: Path) -> None:
    found = {block.language for block in blocks_of(page.read_text(encoding="utf-8"))}
    assert found <= {*RUN, "toml", "text", ""}


@pytest.mark.parametrize("name", ["feddecorr.py", "fedacg.py"])
def test_a_method_of_ones_own_takes_thirty_lines(name: str) -> None:
    examples = blocks(DOCS / "methods.md", "python")
    (example,) = (block for block in examples if block.startswith(f"# {name}\n"))
    assert len(example.splitlines()) <= 30


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    made = {DOCS / path for path in titles(DOCS.parent)}
    aims = [(page.parent / link).resolve() for link in links]
    assert [aim for aim in aims if not aim.exists() and aim not in made] == []


def test_the_glossary_names_what_records_have() -> None:
    """Each name under "in records" is an entry that the code writes or an address that it resolves."""
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| term \| in records \|[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)", page)
    names = [
        name
        for table in tables
        for row in table.splitlines()
        for name in re.findall(r"`([^`]+)`", row.split("|")[2])
    ]
    sources = "\n".join(path.read_text("utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    assert len(names) > 20
    known = {"RUN@best", "RUN@T:anchor", "directions: random"}
    assert [
        name for name in names if name not in known and not re.search(rf"\b{name.split()[0]}\b", sources)
    ] == []
