"""The house as CONTRIBUTING draws it is the house as it is imported; it grows no larger."""

import re
import runpy
from itertools import product
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
HOUSE = runpy.run_path(str(ROOT / "benchmarks" / "house.py"))
GROUND = {
    "storage",
    "streams",
    "process",
    "parent",
    "own",
    "own_rows",
    "pretrained",
    "lora",
    "task_loss",
    "deferred_names",
    "factories",
    "statistics",
    "pairing",
    "validation",
    "choices",
    "extras",
    "errors",
}
Edges = set[tuple[str, str]]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("fedscope", exclude_type_checking_imports=True, cache_dir=None)


def drawn(heading: str) -> Edges:
    """Return the arrows of the picture under a heading of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(heading, 1)[1]
    picture = text.split("```mermaid", 1)[1].split("```", 1)[0]
    lines = re.findall(r"^ *(\w[\w &]*?) --> (\w[\w &]*)$", picture, re.M)
    return {pair for left, right in lines for pair in product(left.split(" & "), right.split(" & "))}


def imported(graph: grimp.ImportGraph, house: str, rooms: set[str]) -> Edges:
    """Return which of the rooms import which, without arrows that others imply."""
    found = {
        (one, other)
        for one, other in product(rooms, rooms)
        if one != other
        and graph.direct_import_exists(
            importer=f"{house}.{one}", imported=f"{house}.{other}", as_packages=True
        )
    }
    reach = set(found)
    for middle, one, other in product(rooms, rooms, rooms):
        if (one, middle) in reach and (middle, other) in reach:
            reach.add((one, other))
    implied = {
        (one, other)
        for one, other in found
        if any((one, middle) in reach and (middle, other) in reach for middle in rooms)
    }
    return found - implied


def test_the_picture_is_the_house(graph: grimp.ImportGraph) -> None:
    rooms = {name.removeprefix("fedscope.") for name in graph.find_children("fedscope")}
    assert drawn("## The house") == imported(graph, "fedscope", rooms - GROUND - {"__main__"})


def test_the_ground_stands_on_nothing_above(graph: grimp.ImportGraph) -> None:
    rooms = {name.removeprefix("fedscope.") for name in graph.find_children("fedscope")}
    assert rooms >= GROUND
    for one, other in product(GROUND, rooms - GROUND):
        names = {"importer": f"fedscope.{one}", "imported": f"fedscope.{other}"}
        assert not graph.direct_import_exists(**names, as_packages=True), names


def test_the_picture_of_the_analysis(graph: grimp.ImportGraph) -> None:
    rooms = {
        "loss", "operators", "spectral", "surfaces", "paths", "gradients", "sharpness",
        "heterogeneity", "published",
    }  # fmt: skip
    assert drawn("### The analysis") == imported(graph, "fedscope.landscape", rooms)


def test_a_name_is_used_once() -> None:
    assert set(HOUSE["repeated"](HOUSE["class_names"](ROOT / "src"))) == set()
    files = HOUSE["repeated"](HOUSE["file_names"](ROOT / "src"))
    assert len(files) <= 10, files


def test_what_repeats_is_found(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
        (tmp_path / folder / "same.py").write_text(f"class Same: pass\n\n\nclass {folder.title()}: pass\n")
    (tmp_path / "one" / "alone.py").write_text("def f():\n    'Say so.'\n    x = 1\n    return x\n")
    assert HOUSE["repeated"](HOUSE["class_names"](tmp_path)) == {"Same": 2}
    assert HOUSE["repeated"](HOUSE["file_names"](tmp_path)) == {"same.py": 2}
    assert HOUSE["sizes"](tmp_path) == {
        "lines": 12, "files": 5, "class names used more than once": 1, "file names used more than once": 1,
        "files in the largest folder": 3, "lines of the largest file": 4,
        "median lines of a function's body": 2,
    }  # fmt: skip


def test_the_largest_only_shrink() -> None:
    assert HOUSE["largest_file"](ROOT / "src") <= 300
    assert HOUSE["largest_folder"](ROOT / "src") <= 28
