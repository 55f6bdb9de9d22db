"""The notebooks: their code runs, and what is stored is of that code, without a fault, with pictures."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def _stored(name: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return cells


def _cells(source: str) -> list[str]:
    """The code cells of a source in the percent format."""
    parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [text.strip() for head, text in pairs if "markdown" not in head]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, programs: Path) -> None:
    (tmp_path / "checkpoints").symlink_to(PROJECT / "checkpoints")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "MPLBACKEND": "agg"}
    command = [programs / "python", FOLDER / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_of_the_source(name: str) -> None:
    code = ["".join(cell["source"]).strip() for cell in _stored(name) if cell["cell_type"] == "code"]
    assert code == _cells((FOLDER / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_ran_and_has_pictures(name: str) -> None:
    cells = [cell for cell in _stored(name) if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for output in outputs if output["output_type"] == "error"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "text/html" in kinds
    assert ("image/png" in kinds) or name == "transformer"
    assert not re.search(r"/home/|/work/|/tmp/|/root/", json.dumps(outputs))


def test_the_stored_table_is_the_gallerys() -> None:
    first = next(cell for cell in _stored("papers_table") if cell["cell_type"] == "code")
    printed = "".join(
        "".join(output["text"]) for output in first["outputs"] if output["output_type"] == "stream"
    )
    page = (PROJECT / "figures" / "man" / "table2-cpu.md").read_text(encoding="utf-8")
    assert printed.split() == page.split("## What this is")[0].split()
