"""Loggers by name."""

import sys
from pathlib import Path

import pytest

from fedscope.errors import UserError
from fedscope.loggers import names
from fedscope.loggers.names import LOGGERS, logger

OWN = """
class Logger:
    def open(self, run, settings):
        return 0

    def log(self, round, metrics):
        print(round)

    def close(self):
        pass

def half():
    return object()
"""


@pytest.fixture
def mylogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylogs.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("mylogs")
def test_a_logger_of_ones_own_by_import_path_and_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "registered", lambda group: {"mine": "mylogs:Logger"})
    assert type(logger("mylogs:Logger")) is type(logger("mine"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensorbord", "takes tensorboard, wandb, mlflow or MODULE:FACTORY, .* did you mean 'tensorboard'"),
        ("mylogs:half", "a logger has the methods open, log and close"),
        ("mylogs:Loger", "did you mean 'Logger'"),
        ("nowhere:Logger", "--log nowhere:Logger: ModuleNotFoundError"),
    ],
)
@pytest.mark.usefixtures("mylogs")
def test_what_is_no_logger_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        logger(name)


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")],
)
def test_a_missing_package_is_told(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in LOGGERS
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install 'fedscope\[{name}\]'"):
        logger(name)
