"""The code of the pages runs as printed: a page in a folder of its own, those of the tutorial in one."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from builder.blocks import blocks_of
from builder.pages import titles
from builder.running import SHOWN, pictures, script, shown, units
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.methods import METHODS
from tests.shown import differences

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


def _plain_and_flat(folder: Path) -> list[RunFolder]:
    return [RunRegistry(folder / "checkpoints").run(name) for name in ("plain", "flat")]


def _settings(folder: Path) -> list[dict[str, Any]]:
    return [run.manifest().settings.model_dump() for run in _plain_and_flat(folder)]


def _between(folder: Path, name: str) -> list[float]:
    found = json.loads((folder / "curvature.json").read_text())
    return [one["cross_client"][name]["parameter"]["value"] for one in found]


CLAIMS: dict[str, dict[str, Callable[[Path], bool]]] = {
    "tutorial": {
        "1,437 images of handwritten digits were divided among four clients": lambda folder: (
            {
                (run.manifest().data.train_samples, run.manifest().settings.clients)
                for run in _plain_and_flat(folder)
            }
            == {(1437, 4)}
        ),
        "concentration 0.5). In each of six rounds every client took two passes": lambda folder: (
            {(one["alpha"], one["rounds"], one["epochs"], one["participation"]) for one in _settings(folder)}
            == {(0.5, 6, 2, 1.0)}
        ),
        "Both drew the same partition": lambda folder: (
            len({run.rows().read_bytes() for run in _plain_and_flat(folder)}) == 1
        ),
        "Of the settings only the method differs, with the options that it brings": lambda folder: (
            {name for name, value in _settings(folder)[0].items() if _settings(folder)[1][name] != value}
            == {"method", "options"}
        ),
        "`flat`'s H_N is smaller": lambda folder: _between(folder, "H_N")[1] < _between(folder, "H_N")[0],
        "*scale-free* H_N, also in `curvature.json`": lambda folder: (
            len(_between(folder, "H_N_scale_free")) == 2
        ),
        "directions are more alike by H_D (parameter)": lambda folder: (
            _between(folder, "H_D")[1] > _between(folder, "H_D")[0]
        ),
    }
}
"""What sentences say of the runs of their pages, in whose folder they are looked up."""


def test_pages_count_the_methods_that_there_are() -> None:
    pages = [DOCS.parent / "README.md", *PAGES]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    counts = re.findall(r"\b(\d+) methods,", text)
    assert len(counts) >= 2
    assert set(counts) == {str(len(METHODS))}


@pytest.mark.parametrize("unit", CLAIMS)
def test_the_claims_that_are_looked_up_are_made(unit: str) -> None:
    pages = {block.page for block in UNITS[unit]}
    text = " ".join(" ".join((DOCS / page).read_text(encoding="utf-8").split()) for page in sorted(pages))
    assert [sentence for sentence in CLAIMS[unit] if sentence not in text] == []


@pytest.mark.parametrize("unit", CLAIMS)
def test_numbers_in_sentences_stand_in_the_output_that_is_shown(unit: str) -> None:
    prose, outputs = "", ""
    for page in dict.fromkeys(block.page for block in UNITS[unit]):
        text = (DOCS / page).read_text(encoding="utf-8")
        prose += re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        outputs += "".join(blocks(DOCS / page, "text"))
    prose = " ".join(prose.split())
    for sentence in CLAIMS[unit]:
        prose = prose.replace(sentence, "")
    said = re.findall(r"\d+\.\d+", prose)
    assert said
    assert [number for number in said if number not in outputs] == []


@pytest.mark.parametrize(
    ("shown_as", "faults"),
    [
        ("a ┃ n ┃ λ\nr │ 7 │ 5.1 ± 0.2: lower", 0),
        ("a ┃ … ┃ λ\nr │ … │ 5.4 ± 0.2: lower", 0),  # within three errors
        ("a ┃ … ┃ λ\nr │ … │ 5.9 ± 0.2: lower", 1),
        ("a ┃ … ┃ λ\nr │ … │ 5.1 ± 0.2: higher", 1),
        ("a ┃ n ┃ …\nr │ 8 │ …", 1),
        ("a ┃ n ┃ …\ns │ 7 │ …", 1),
        ("a ┃ m ┃ …\nr │ 7 │ …", 1),
        ("22 methods", 1),
        ("…\n41 methods", 0),
        ("a ┃ λ\nr │ 5.1 ± 0.2: lower", 1),  # a column is left out
    ],
)
def test_another_output_than_the_one_shown_is_seen(shown_as: str, faults: int) -> None:
    printed = "41 methods\na ┃ n ┃ λ\n━━╇━━╇━━\nr │ 7 │ 5.1 ± 0.2: lower\n"
    assert len(differences(shown_as, printed)) == faults


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_the_code_runs(unit: str, tmp_path: Path, programs: Path) -> None:
    page = UNITS[unit]
    lines = script(page, tmp_path)
    install(tmp_path)
    path = f"{programs}:{Path(sys.executable).parent}"
    setting = f"PATH={path}:$PATH\nexport PYTHONPATH={tmp_path}:{DOCS.parent}\n"
    done = subprocess.run(["bash", "-c", setting + lines], cwd=tmp_path, capture_output=True, text=True)
    printed = {number: tmp_path / SHOWN.format(number) for number in shown(page)}
    assert done.returncode == 0, done.stderr + "".join(
        path.read_text() for path in printed.values() if path.exists()
    )
    for number, text in shown(page).items():
        assert differences(text, printed[number].read_text()) == []
    for sentence, is_true in CLAIMS.get(unit, {}).items():
        assert is_true(tmp_path), sentence
    drawn = {name: apart(tmp_path / name, DOCS / "pictures" / name) for name in pictures(page, DOCS)}
    assert {name: distance for name, distance in drawn.items() if distance > 10} == {}


def apart(one: Path, other: Path) -> float:
    """Return the mean distance of two pictures' channels, of 255, at one size."""
    first, second = (
        np.asarray(Image.open(path).convert("RGB").resize((200, 200)), float) for path in (one, other)
    )
    return float(np.abs(first - second).mean())


def test_another_picture_is_seen() -> None:
    kept = [DOCS / "pictures" / name for name in ("landscape.png", "near.png", "twins_plain.png")]
    assert apart(kept[0], kept[0]) == 0
    assert min(apart(one, other) for one in kept for other in kept if one != other) > 20


def test_every_picture_is_shown_and_small() -> None:
    shown = {name for page in UNITS.values() for name in pictures(page, DOCS)}
    kept = list((DOCS / "pictures").iterdir())
    assert {path.name for path in kept} == shown
    assert all(path.stat().st_size < 200_000 for path in kept)


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
