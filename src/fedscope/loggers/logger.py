"""Loggers of a run: by name, opened and closed, and the numbers that they get.

One that fails during the training is left out and costs it nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from statistics import fmean
from typing import Protocol

from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError, suggestion
from fedscope.extras import needed
from fedscope.factories import imported, reason
from fedscope.loggers.trackers import Log, to_mlflow, to_tensorboard, to_wandb
from fedscope.own import LOGGERS as GROUP
from fedscope.own import registered

FLAG = "--log"


class Logger(Protocol):
    """A function ``logger(run, settings)``: begin, or go on with, what is kept of a run while it is trained.

    ``run`` has the folder, name and manifest; ``settings`` are those of the training, the method's options
    among them as METHOD.OPTION. It returns a context manager, which is left when the training ends, of the
    last round that is kept already, 0 if none is, and of a function ``log(round, metrics)``. That is called
    with each round after it, in ascending order and once, and with every number of the round by name: nested
    ones as NAME/KEY, of the diagnostics' lists, which have a number for each client or class, their mean,
    least and most.
    """

    def __call__(
        self, run: RunFolder, settings: Mapping[str, object]
    ) -> AbstractContextManager[tuple[int, Log]]: ...


# name → the package that it needs, the logger
LOGGERS: dict[str, tuple[str, Logger]] = {
    "tensorboard": ("torch.utils.tensorboard", to_tensorboard),
    "wandb": ("wandb", to_wandb),
    "mlflow": ("mlflow", to_mlflow),
}


def names() -> list[str]:
    return [*LOGGERS, *registered(GROUP)]


def logger(name: str) -> Logger:
    """Return the logger of that name: one of :data:`LOGGERS`, another package's, or MODULE:FUNCTION."""
    if name in LOGGERS:
        package, known = LOGGERS[name]
        with needed(name, f"{FLAG} {name}"):
            import_module(package)
        return known
    if ":" not in name and name not in names():
        near = suggestion(name, names())
        raise UserError(f"{FLAG} takes {', '.join(names())} or MODULE:FUNCTION, not {name!r}{near}")
    own: Logger = imported(registered(GROUP).get(name, name), FLAG)
    return own


@contextmanager
def logged(
    run: RunFolder, loggers: Mapping[str, Logger], note: Callable[[str], None]
) -> Iterator[Callable[[Round], None]]:
    """Open the loggers, yield what takes each new round, and close them.

    A logger that lacks earlier rounds, because it is new or a process was killed, gets these first. One that
    fails later is told to ``note``, once.
    """
    settings, before = settings_of(run.manifest()), run.metrics()
    opened, logs = dict[str, AbstractContextManager[tuple[int, Log]]](), dict[str, Log]()

    @contextmanager
    def left_out(name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a logger, its server or its disk raises
            note(f"{name}: {reason(error)}; the training goes on without it")
            with suppress(Exception):  # it may hold threads and files
                if logs.pop(name, None):
                    opened.pop(name).__exit__(None, None, None)

    def log(metrics: Round) -> None:
        found = numbers(metrics)
        for name, one in list(logs.items()):
            with left_out(name):
                one(metrics.round, found)

    try:
        for name, one in loggers.items():
            try:
                context = one(run, settings)
                done, logs[name] = context.__enter__()
                opened[name] = context
                for metrics in before[done:]:
                    logs[name](metrics.round, numbers(metrics))
            except Exception as error:
                said = str(error) if isinstance(error, UserError) else reason(error)
                raise UserError(f"{FLAG} {name}: {said}; mend that, or leave {FLAG} {name} out") from error
        yield log
    finally:
        logs.clear()
        for name, context in opened.items():
            with left_out(name):
                context.__exit__(None, None, None)


def settings_of(manifest: Manifest) -> dict[str, object]:
    settings = manifest.settings.model_dump(mode="json")
    options: dict[str, object] = settings.pop("options")
    return {**settings, **options}


def numbers(metrics: Round) -> dict[str, float]:
    """Return the numbers of a round, by name; of its clients how many they are."""
    content = {name: value for name, value in metrics.to_json().items() if name not in ("round", "rows")}
    return dict(_numbers("", content))


def _numbers(name: str, value: object) -> Iterator[tuple[str, float]]:
    parts: Mapping[object, object] = {}
    if name == "clients" and isinstance(value, list):
        yield name, len(value)
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list) and name.startswith("diagnostics/"):
        known = [one for one in value if one is not None]
        parts = {"mean": fmean(known), "least": min(known), "most": max(known)} if known else {}
    elif isinstance(value, list):
        parts = dict(enumerate(value))
    elif isinstance(value, int | float):
        yield name, value
    for key, part in parts.items():
        yield from _numbers(f"{name}/{key}" if name else str(key), part)
