"""TensorBoard's files, read by TensorBoard."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.loggers.logger import logged
from fedscope.loggers.trackers import to_tensorboard


def steps(run: RunFolder) -> list[int]:
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    return [event.step for event in events.Scalars("accuracy")]


def test_a_continued_run_has_every_round_once(own: RunFolder) -> None:
    with logged(own, {"tensorboard": to_tensorboard}, pytest.fail):
        pass
    assert steps(own) == [1, 2]
    with logged(own, {"tensorboard": to_tensorboard}, pytest.fail) as log:
        log(own.metrics()[-1].edited(round=3))
    assert steps(own) == [1, 2, 3]


def test_nothing_is_written_through_a_link(own: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (own.folder / "tensorboard").symlink_to(elsewhere)
    with pytest.raises(UserError, match="tensorboard"), logged(own, {"t": to_tensorboard}, pytest.fail):
        pass
    assert not list(elsewhere.iterdir())
