"""Loggers by name."""

import sys
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.loggers import logger as loggers
from fedscope.loggers.logger import LOGGERS, logged, logger

OWN = """
from contextlib import contextmanager

@contextmanager
def lines(run, settings):
    yield 0, print

def half(run, settings):
    return object()
"""


@pytest.fixture
def mylogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylogs.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("mylogs")
def test_a_logger_of_ones_own_by_import_path_and_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "registered", lambda group: {"mine": "mylogs:lines"})
    assert logger("mylogs:lines") is logger("mine")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensorbord", "takes tensorboard, wandb, mlflow or MODULE:FUNCTION, .* did you mean 'tensorboard'"),
        ("mylogs:line", "did you mean 'lines'"),
        ("nowhere:Logger", "--log nowhere:Logger: ModuleNotFoundError"),
    ],
)
@pytest.mark.usefixtures("mylogs")
def test_what_is_no_logger_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        logger(name)


@pytest.mark.usefixtures("mylogs")
def test_a_function_that_is_no_context_manager_is_refused(run: RunFolder) -> None:
    with (
        pytest.raises(UserError, match=r"--log half: .*object.*; mend that, or leave --log half out"),
        logged(run, {"half": logger("mylogs:half")}, pytest.fail),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")],
)
def test_a_missing_package_is_told(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in LOGGERS
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install 'fedscope\[{name}\]'"):
        logger(name)
