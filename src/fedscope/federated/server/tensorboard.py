"""The metrics of a run as TensorBoard scalars; needs the extra ``fedscope[tensorboard]``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedscope.checkpoints.file.schema import Round
from fedscope.errors import UserError
from fedscope.storage import make_folder


@contextmanager
def scalars(folder: Path) -> Iterator[Callable[[Round], None]]:
    """Yield a function that writes a round's metrics below ``folder``; a round written twice counts once.

    Raises:
        UserError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs TensorBoard: pip install 'fedscope[tensorboard]'") from error
    make_folder(folder, below=folder.parents[1])  # of ROOT/RUN/tensorboard
    writer: SummaryWriter | None = None

    def write(metrics: Round) -> None:
        nonlocal writer
        round = metrics.round
        if writer is None:  # a killed run may have written rounds that are now done again
            writer = SummaryWriter(str(folder), purge_step=round)
        for name, number in _numbers(metrics.to_json()):
            writer.add_scalar(name, number, round)
        writer.flush()

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _numbers(metrics: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of ``metrics`` under its name; nested ones and lists under NAME/KEY."""
    for name, value in metrics.items():
        if name == "clients":
            yield prefix + name, len(value) if isinstance(value, list) else 0
        elif name == "rows":  # whose they are, and no measure
            continue
        elif isinstance(value, list):
            yield from _numbers(dict(zip(map(str, range(len(value))), value, strict=True)), f"{name}/")
        elif isinstance(value, Mapping):
            yield from _numbers(value, f"{name}/")
        elif isinstance(value, int | float) and name != "round":
            yield prefix + name, value
