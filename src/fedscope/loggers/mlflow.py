"""Metrics in MLflow, where ``MLFLOW_TRACKING_URI`` says, in the experiment ``MLFLOW_EXPERIMENT_NAME``."""

import os
import time
from collections.abc import Mapping
from typing import Any

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.extras import needed
from fedscope.loggers.logger import Numbers, key

EXPERIMENT = "fedscope"  # unless the environment names another
TAG = "fedscope.run"  # has the run's key
ROUND = "round"  # the metric that says how far a run is
LONGEST = 250  # characters of a parameter's value


class MLflow:
    """Logs to one run of MLflow, found again by its tag."""

    def __init__(self) -> None:
        with needed("mlflow", "--log mlflow"):
            import mlflow
        self._library: Any = mlflow
        self._client: Any = None
        self._id: str | None = None

    def open(self, run: RunFolder, settings: Mapping[str, object]) -> int:
        self._client = self._library.MlflowClient()
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT))
        tag = key(run.manifest())
        found = self._client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'", max_results=1)
        if found:
            self._id = str(found[0].info.run_id)
            self._client.set_terminated(self._id, "RUNNING")
            return int(found[0].data.metrics.get(ROUND, 0))
        made = self._client.create_run(experiment, tags={TAG: tag}, run_name=run.name)
        self._id = str(made.info.run_id)
        params = [
            self._library.entities.Param(name, str(value)[:LONGEST]) for name, value in settings.items()
        ]
        self._client.log_batch(self._id, params=params)
        return 0

    def log(self, round: int, metrics: Numbers) -> None:
        """Log the numbers of a round at the step of that number; the number itself comes last."""
        now = int(time.time() * 1000)
        every = {**metrics, ROUND: round}
        entries = [self._library.entities.Metric(name, value, now, round) for name, value in every.items()]
        self._client.log_batch(self._id, metrics=entries)

    def close(self) -> None:
        if self._id is not None:
            self._client.set_terminated(self._id)

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known else self._client.create_experiment(name))
