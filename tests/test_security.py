"""What the package never calls: shell, eval, a pickle that runs code; and the tests of each promise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def calls(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the keyword arguments of each call."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {str(k.arg): ast.unparse(k.value) for k in node.keywords}


def forbidden(name: str, keywords: dict[str, str]) -> bool:
    if name == "torch.load":
        return keywords.get("weights_only") != "True"
    if name in ("np.load", "numpy.load"):
        return keywords.get("allow_pickle", "False") != "False"
    if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "tarfile.open"):
        return True
    unpickles = name.split(".")[0] in ("pickle", "dill", "joblib", "marshal", "shelve")
    return unpickles or keywords.get("shell", "False") != "False" or "extractall" in name


def test_nothing_runs_what_a_file_says() -> None:
    found = {(p.name, call[0]) for p in SOURCES for call in calls(p.read_text()) if forbidden(*call)}
    assert len(SOURCES) > 100
    assert found == {("workers.py", "pickle.load")}  # what rank 0 writes to its own children's standard input


@pytest.mark.parametrize(
    "line",
    ["torch.load(p)", "torch.load(p, weights_only=False)", "eval(x)", "os.system(x)", "pickle.loads(x)",
     "subprocess.run(x, shell=True)", "np.load(p, allow_pickle=True)", "archive.extractall(p)"],
)  # fmt: skip
def test_the_search_finds(line: str) -> None:
    assert any(forbidden(*call) for call in calls(line))


def promises() -> dict[str, list[str]]:
    """Return the tests that each promise of SECURITY.md names, by its first words."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What is not promised")[0]
    found = re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", text, re.DOTALL | re.MULTILINE)
    return {words: re.findall(r"`((?:tests/|test_)[\w/.]+)`", promise) for words, promise in found}


@pytest.mark.parametrize("promise", promises())
def test_each_promise_names_tests_that_are_there(promise: str) -> None:
    named = promises()[promise]
    assert named
    every = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in named:
        assert (ROOT / name).is_file() if "/" in name else f"def {name}(" in every, name
