"""Several loggers of one run; one that fails during the training is left out and costs it nothing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.loggers.logger import Logger, numbers, settings_of


@contextmanager
def logged(
    run: RunFolder, loggers: Mapping[str, Logger], note: Callable[[str], None]
) -> Iterator[Callable[[Round], None]]:
    """Open the loggers, yield what takes each new round, and close them.

    A logger that lacks earlier rounds, because it is new or a process was killed, gets these first. One that
    fails later is told to ``note``, once.
    """
    group = _Several(loggers, note)
    try:
        group.open(run)
        yield group.log
    finally:
        group.close()


class _Several:
    """The loggers that have not failed."""

    def __init__(self, loggers: Mapping[str, Logger], note: Callable[[str], None]):
        self._working, self._note = dict(loggers), note

    def open(self, run: RunFolder) -> None:
        settings, before = settings_of(run.manifest()), run.metrics()

        def catch_up(logger: Logger) -> None:
            done = logger.open(run, settings)
            for metrics in before[done:]:
                logger.log(metrics.round, numbers(metrics))

        self._each(catch_up, begun=False)

    def log(self, metrics: Round) -> None:
        found = numbers(metrics)
        self._each(lambda logger: logger.log(metrics.round, found))

    def close(self) -> None:
        self._each(lambda logger: logger.close())

    def _each(self, step: Callable[[Logger], None], *, begun: bool = True) -> None:
        """Do a step with each logger, and drop those that fail; before the training, refuse them."""
        for name, logger in list(self._working.items()):
            try:
                step(logger)
            except Exception as error:  # whatever a logger, its server or its disk raises
                if not begun:
                    said = str(error) if isinstance(error, UserError) else reason(error)
                    raise UserError(f"--log {name}: {said}; mend that, or leave --log {name} out") from error
                del self._working[name]
                with suppress(Exception):  # it may hold threads and files, open or not
                    logger.close()
                self._note(f"{name}: {reason(error)}; the training goes on without it")
