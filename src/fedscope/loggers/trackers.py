"""TensorBoard, Weights & Biases and MLflow as loggers (:class:`fedscope.loggers.logger.Logger`)."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.storage import make_folder, read_text, write_text

Log = Callable[[int, Mapping[str, float]], None]
PROJECT = "fedscope"  # unless the environment names another project of W&B, or experiment of MLflow
TAG = "fedscope.run"  # of MLflow's run: has the run's key
ROUND = "round"  # MLflow's metric that says how far a run is
LONGEST = 250  # characters of a parameter's value


def key(manifest: Manifest) -> str:
    """Return 16 hexadecimal digits that a run has from its beginning: a hash of its name and moment."""
    return hashlib.sha256(f"{manifest.name} {manifest.created}".encode()).hexdigest()[:16]


@contextmanager
def to_tensorboard(run: RunFolder, settings: Mapping[str, object]) -> Iterator[tuple[int, Log]]:
    """Write scalars to the run's folder ``tensorboard``, from the first round: files do not tell the last.

    Readers drop what an earlier writer wrote of the same rounds.
    """
    from torch.utils.tensorboard import SummaryWriter

    folder = run.folder / "tensorboard"
    make_folder(folder, below=run.root)
    with SummaryWriter(str(folder), purge_step=1) as writer:

        def log(round: int, metrics: Mapping[str, float]) -> None:
            for name, number in metrics.items():
                writer.add_scalar(name, number, round)
            writer.flush()

        yield 0, log


@contextmanager
def to_wandb(run: RunFolder, settings: Mapping[str, object]) -> Iterator[tuple[int, Log]]:
    """Log to one run of W&B, whose id is the run's key; offline, in the run's folder ``wandb``.

    An offline run cannot be asked how far it is, so the last round is noted beside it.
    """
    import wandb

    noted = run.folder / "wandb" / "last_round"
    make_folder(noted.parent, below=run.root)
    opened: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=key(run.manifest()),
        name=run.name,
        dir=str(run.folder),
        resume="allow",
        config=dict(settings),
        settings=wandb.Settings(console="off"),  # what the terminal shows is no result
    )

    def log(round: int, metrics: Mapping[str, float]) -> None:
        opened.log(dict(metrics), step=round)
        write_text(noted, str(round), below=run.root)

    try:
        yield int(read_text(noted)) if noted.exists() else 0, log
    finally:
        opened.finish()


@contextmanager
def to_mlflow(run: RunFolder, settings: Mapping[str, object]) -> Iterator[tuple[int, Log]]:
    """Log to one run of MLflow, found again by its tag, where ``MLFLOW_TRACKING_URI`` says."""
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    tag = key(run.manifest())
    found = client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'", max_results=1)
    kept = found[0] if found else client.create_run(experiment, tags={TAG: tag}, run_name=run.name)
    place, done = kept.info.run_id, int(kept.data.metrics.get(ROUND, 0))

    def log(round: int, metrics: Mapping[str, float]) -> None:
        now, every = int(time.time() * 1000), {**metrics, ROUND: round}  # the round comes last
        client.log_batch(place, metrics=[Metric(name, value, now, round) for name, value in every.items()])

    if found:
        client.set_terminated(place, "RUNNING")
    try:
        if not found:
            client.log_batch(place, params=[Param(k, str(v)[:LONGEST]) for k, v in settings.items()])
        yield done, log
    finally:
        client.set_terminated(place)
