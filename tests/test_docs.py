"""The commands of the user guide run as printed, one page after the other in one folder."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def install(page: Path, folder: Path) -> None:
    """Write the page's files, and what an installer would make of its pyproject.toml, into ``folder``."""
    for block in blocks(page, "(?:python|toml)"):
        name = block.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(block, encoding="utf-8")
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
@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.stem)
def test_the_commands_run(page: Path, tmp_path: Path, programs: Path) -> None:
    commands = blocks(page, "sh")
    assert commands
    install(page, tmp_path)
    path = f"{programs}:{Path(sys.executable).parent}"
    script = "\n".join(["set -e", f"PATH={path}:$PATH", f"export PYTHONPATH={tmp_path}", *commands])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["feddecorr.py", "fedacg.py"])
def test_a_method_of_ones_own_takes_thirty_lines(name: str) -> None:
    examples = blocks(DOCS[0].parent / "methods.md", "python")
    (example,) = (block for block in examples if block.startswith(f"# {name}\n"))
    assert len(example.splitlines()) <= 30


@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert all((page.parent / link).exists() for link in links), links


def test_the_glossary_names_what_records_have() -> None:
    """Each name under "in records" is an entry that the code writes or an address that it resolves."""
    page = (DOCS[0].parent / "glossary.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| term \| in records \|[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)", page)
    names = [
        name
        for table in tables
        for row in table.splitlines()
        for name in re.findall(r"`([^`]+)`", row.split("|")[2])
    ]
    sources = "\n".join(path.read_text("utf-8") for path in (DOCS[0].parents[1] / "src").rglob("*.py"))
    assert len(names) > 20
    known = {"RUN@best", "RUN@T:anchor", "directions: random"}
    assert [
        name for name in names if name not in known and not re.search(rf"\b{name.split()[0]}\b", sources)
    ] == []
