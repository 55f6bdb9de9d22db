"""Loggers by name: fedscope's own, those of other packages, and the user's own as MODULE:FACTORY."""

from collections.abc import Callable
from typing import Any

from fedscope.errors import UserError, suggestion
from fedscope.factories import called
from fedscope.loggers.logger import Logger
from fedscope.loggers.mlflow import MLflow
from fedscope.loggers.tensorboard import TensorBoard
from fedscope.loggers.wandb import WandB
from fedscope.own import LOGGERS as GROUP
from fedscope.own import registered

LOGGERS: dict[str, Callable[[], Logger]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
FLAG = "--log"


def names() -> list[str]:
    return [*LOGGERS, *registered(GROUP)]


def logger(name: str) -> Logger:
    """Return a new logger: one of :data:`LOGGERS`, of another package's, or what MODULE:FACTORY makes."""
    if name in LOGGERS:
        return LOGGERS[name]()
    if ":" not in name and name not in names():
        near = suggestion(name, names())
        raise UserError(f"{FLAG} takes {', '.join(names())} or MODULE:FACTORY, not {name!r}{near}")
    made: Any = called(registered(GROUP).get(name, name), FLAG)
    if not isinstance(made, Logger):
        raise UserError(f"{FLAG} {name}: a logger has the methods open, log and close")
    return made
