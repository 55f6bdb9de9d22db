"""Metrics in Weights & Biases, online or, with ``WANDB_MODE=offline``, in the folder ``wandb`` of the run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.extras import needed
from fedscope.loggers.logger import Numbers, key
from fedscope.storage import make_folder, read_text, write_text

PROJECT = "fedscope"  # unless WANDB_PROJECT names another


class WandB:
    """Logs to one run of W&B, whose id is the run's key; a continued run goes on with it.

    An offline run cannot be asked how far it is, so the last round is noted beside it.
    """

    def __init__(self) -> None:
        with needed("wandb", "--log wandb"):
            import wandb
        self._library: Any = wandb
        self._run: Any = None
        self._noted = Path()
        self._root = Path()

    def open(self, run: RunFolder, settings: Mapping[str, object]) -> int:
        folder, self._root = run.folder / "wandb", run.root
        make_folder(folder, below=run.root)
        self._noted = folder / "last_round"
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=key(run.manifest()),
            name=run.name,
            dir=str(run.folder),
            resume="allow",
            config=dict(settings),
            settings=self._library.Settings(console="off"),  # what the terminal shows is no result
        )
        return int(read_text(self._noted)) if self._noted.exists() else 0

    def log(self, round: int, metrics: Numbers) -> None:
        self._run.log(dict(metrics), step=round)
        write_text(self._noted, str(round), below=self._root)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
