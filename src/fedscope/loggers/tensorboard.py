"""Metrics as TensorBoard's scalars, in the folder ``tensorboard`` of the run."""

from collections.abc import Mapping
from typing import Any

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.extras import needed
from fedscope.loggers.logger import Numbers
from fedscope.storage import make_folder


class TensorBoard:
    """Writes event files; readers drop what an earlier writer wrote of the same rounds."""

    def __init__(self) -> None:
        with needed("tensorboard", "--log tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make = SummaryWriter
        self._writer: Any = None

    def open(self, run: RunFolder, settings: Mapping[str, object]) -> int:
        """Begin anew from the first round: event files tell only by being read how far they are."""
        folder = run.folder / "tensorboard"
        make_folder(folder, below=run.root)
        self._writer = self._make(str(folder), purge_step=1)
        return 0

    def log(self, round: int, metrics: Numbers) -> None:
        for name, number in metrics.items():
            self._writer.add_scalar(name, number, round)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
