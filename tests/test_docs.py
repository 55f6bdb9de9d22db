"""The code of the pages runs as printed: a page in a folder of its own, those of the tutorial in one."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from builder.blocks import blocks_of
from builder.pages import titles
from builder.running import pictures, script, units

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUN = ("sh", "python")
# the recipes have a test of their own
UNITS = {name: page for name, page in units(DOCS).items() if not name.startswith("coming_from/")}


def blocks(page: Path, language: str) -> list[str]:
    found = blocks_of(page.read_text(encoding="utf-8"))
    return [block.code for block in found if block.language == language]


def install(folder: Path) -> None:
    """Write what an installer would make of a page's pyproject.toml."""
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


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_the_code_runs(unit: str, tmp_path: Path, programs: Path) -> None:
    page = UNITS[unit]
    lines = script(page, tmp_path)
    install(tmp_path)
    path = f"{programs}:{Path(sys.executable).parent}"
    setting = f"PATH={path}:$PATH\nexport PYTHONPATH={tmp_path}:{DOCS.parent}\n"
    done = subprocess.run(["bash", "-c", setting + lines], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [name for name in pictures(page, DOCS) if not (tmp_path / name).exists()] == []


def test_every_picture_is_shown_and_small() -> None:
    shown = {name for page in UNITS.values() for name in pictures(page, DOCS)}
    kept = list((DOCS / "pictures").iterdir())
    assert {path.name for path in kept} == shown
    assert all(path.stat().st_size < 100_000 for path in kept)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_block_is_run_or_says_that_it_is_text(page: Path) -> None:
    found = {block.language for block in blocks_of(page.read_text(encoding="utf-8"))}
    assert found <= {*RUN, "toml", "text", ""}


@pytest.mark.parametrize("name", ["decov.py", "lookahead.py"])
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
    code = [path for folder in ("src", "studies") for path in (DOCS.parent / folder).rglob("*.py")]
    sources = "\n".join(path.read_text("utf-8") for path in code)
    assert len(names) > 20
    known = {"RUN@best", "RUN@T:anchor", "directions: random"}
    assert [
        name for name in names if name not in known and not re.search(rf"\b{name.split()[0]}\b", sources)
    ] == []
