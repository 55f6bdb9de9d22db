"""The recipes of the pages 'coming from …': a library's example and ours give the same number."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.blocks import Block, Blocks

PAGES = [
    block for block in Blocks(Path(__file__).parents[1] / "docs").all if block.page.startswith("coming_from/")
]
RECIPES = {
    f"{block.page.removeprefix('coming_from/').removesuffix('.md')}-{number}": block
    for number, block in enumerate(PAGES)
    if block.language == "python" and block.name is None
}
# Flower and the pins exclude each other: a Python of its own, in which fedscope can be imported
PYTHON = os.environ.get("FEDSCOPE_FLOWER_PYTHON", sys.executable)


def imported(recipe: Block) -> set[str]:
    """The packages that a recipe imports, but for the page's own file."""
    names = set()
    for node in ast.walk(ast.parse(recipe.code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    return {name.split(".")[0] for name in names} - {"mine", "registered"}


def lacking(recipe: Block) -> list[str]:
    """The packages that a recipe imports and that are not here; Flower may be in a Python of its own."""
    elsewhere = {"flwr"} if sys.executable != PYTHON else set()
    return [name for name in sorted(imported(recipe) - elsewhere) if not importlib.util.find_spec(name)]


def test_there_are_fifteen_and_those_of_pyhessian_always_run() -> None:
    assert len(RECIPES) >= 15
    always = [name for name, recipe in RECIPES.items() if "pyhessian" in imported(recipe)]
    assert len(always) >= 4
    assert importlib.util.find_spec("pyhessian") is not None
    assert all("assert" in recipe.code for recipe in RECIPES.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_both_give_the_same_number(name: str, tmp_path: Path, programs: Path) -> None:
    recipe = RECIPES[name]
    if lacking(recipe):
        pytest.skip(f"needs {', '.join(lacking(recipe))}")
    alone = {"pfl", "wandb"} & imported(recipe)  # which do not run in a process that was forked
    python = PYTHON if "flwr" in imported(recipe) else sys.executable if alone else "python"
    lines = ["set -e", f"PATH={programs}:{Path(sys.executable).parent}:$PATH"]
    for block in PAGES[: PAGES.index(recipe)]:
        if block.page == recipe.page and block.language == "sh":
            lines.append(block.code)
        elif block.page == recipe.page and block.name:
            (tmp_path / block.name).write_text(block.code, encoding="utf-8")
    (tmp_path / "recipe.py").write_text(recipe.code, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    script = "\n".join([*lines, f"export PYTHONPATH={path}", f"{python} recipe.py"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
