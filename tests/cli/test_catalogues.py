"""Lists, and names that are mistyped, need no PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli import figures
from fedscope.cli.main import call
from fedscope.errors import UserError
from fedscope.workflows import catalogues
from fedscope.workflows.results.stored_answers import Answer

LISTS = [
    ["methods", "list"], ["methods", "show", "fedprox"], ["models", "list"], ["presets", "list"],
    ["presets", "show", "fedalign/t1"], ["data", "show", "digits"], ["models", "show", "resnet_digits"],
    ["models", "show", "mlp_digits", "--json"], ["data", "list"], ["data", "list", "--data-dir", "FOLDER"],
    ["runs", "show", "tiny"], ["runs", "show", "tiny", "--json"], ["figures", "list", "--scale", "smoke"],
]  # fmt: skip
MISTYPED = [
    (["hessian", "tinny"], "did you mean 'tiny'?"),
    (["plot-landscape", "tinny"], "did you mean 'tiny'?"),
    (["report", "tinny@best"], "did you mean 'tiny'?"),
    (["train", "--method", "fedavg+mann"], "unknown method 'mann'; did you mean 'man'?"),
    (["train", "--dataset", "cifar-100"], "did you mean 'cifar100'?"),
    (["train", "--model", "resnet_20"], "did you mean 'resnet20'?"),
    (["train", "--preset", "fedalign/t11"], "did you mean 'fedalign/t1'?"),
    (["runs", "list"], ""),
    (["runs", "diff", "tiny", "tiny"], ""),
]  # fmt: skip


RECIPES = Answer([], [("line", "the recipes")])


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_this_imports_torch(
    run: RunFolder,
    cifar_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FEDSCOPE_REGISTRY", str(run.folder.parent))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path))
    lists = [[word.replace("FOLDER", str(cifar_dir)) for word in words] for words in LISTS]
    monkeypatch.setattr(figures, "_listed", lambda *_: RECIPES)
    for kind in ("method", "model", "dataset", "preset"):
        catalogues.names(kind)
    assert [call(words) for words in lists] == [0] * len(lists)
    first = capsys.readouterr().out
    again = _python(
        f"""
import contextlib, io, sys
from fedscope.cli.main import call
for words in {lists}:
    assert call(words) == 0
    assert not {{"torch", "numpy"}} & set(sys.modules), words
for words, message in {MISTYPED}:
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = call(words)
    assert code == (2 if message else 0), (words, said.getvalue())
    assert message in said.getvalue(), said.getvalue()
    assert not {{"torch", "numpy"}} & set(sys.modules), words
"""
    )
    assert first == again


def test_another_source_is_worked_out_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path))
    assert catalogues.cached("x", lambda: [1]) == catalogues.cached("x", lambda: [2]) == [1]
    (file,) = (tmp_path / "catalogues").iterdir()
    file.write_text("{")  # cut short
    assert catalogues.cached("x", lambda: [3]) == catalogues.cached("x", lambda: [4]) == [3]
    monkeypatch.setattr(catalogues, "source", lambda: "other")
    assert catalogues.cached("x", lambda: [5]) == [5]
    monkeypatch.setattr(catalogues, "extended", lambda: True)
    assert catalogues.cached("x", lambda: [6]) == [6]


def test_only_a_name_that_is_nearly_known_is_refused_early() -> None:
    with pytest.raises(UserError, match=r"'fedprx'.*'fedprox'"):
        catalogues.check("method", "fedavg+fedprx")
    for name in ("fedavg+man", "fedpd", "nothing-like-it", "mine:net", None):
        catalogues.check("method", name)
