"""Training, as scripts and notebooks ask for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.workflows.progress import Reporter
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import RunPlan, TrainRequest, plan
from fedscope.workflows.train.train_runs import train, trial

TINY = {
    "dataset": "synthetic",
    "clients": 2,
    "rounds": 1,
    "epochs": 1,
    "train_samples": 40,
    "test_samples": 20,
}


def test_a_request_of_few_words_is_trained_and_told(tmp_path: Path) -> None:
    (found,) = train(TrainRequest(tmp_path, settings=TINY, threads=1))
    run = RunRegistry(tmp_path).run(found.run)
    assert (found.state, run.manifest().settings.rounds) == ("finished", 1)
    assert found.accuracy == run.metrics()[-1].accuracy
    assert Path(found.final) == run.final
    assert not (run.folder / "tensorboard").exists()


def test_a_run_is_continued_under_its_own_preset(tmp_path: Path) -> None:
    (found,) = train(TrainRequest(tmp_path, settings=TINY, threads=1, name="own"))
    longer = TrainRequest(tmp_path, settings={"rounds": 2}, threads=1, name="own", resume=True)
    with pytest.raises(UserError, match="without a preset"):
        train(TrainRequest(tmp_path, threads=1, name="own", resume=True, preset="man/t2"))
    (found,) = train(longer)
    assert found.run == "own"
    assert len(RunRegistry(tmp_path).run("own").metrics()) == 2


def test_a_plan_stops_where_it_is_to_and_writes_nothing_else(tmp_path: Path) -> None:
    settings = Settings.model_validate({**TINY, "rounds": 2})
    train_run(RunPlan(TrainRequest(tmp_path, name="half"), settings, {}, until=1))
    run = RunRegistry(tmp_path).run("half")
    assert len(run.metrics()) == 1
    assert not run.final.exists()
    assert not (run.folder / "tensorboard").exists()


def test_interval_of_steps_that_no_client_makes_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    reporter = Reporter(note=told.append)
    settings = {**TINY, "batch_size": 10, "partition": "iid", "keep_steps": "3:0:1"}
    train(TrainRequest(tmp_path, settings=settings, threads=1), reporter)
    assert told == ["--keep-steps 3:0:1 keeps nothing: its clients make up to 2 local steps in a round"]
    train(TrainRequest(tmp_path, settings={**settings, "keep_steps": "2:0:1"}, threads=1), reporter)
    assert len(told) == 1


def test_an_interrupted_run_of_the_same_settings_is_told_of(tmp_path: Path) -> None:
    told: list[str] = []
    settings = {**TINY, "rounds": 2}
    planned = plan(TrainRequest(tmp_path, settings=settings, threads=1, name="half"), "cpu", 1)
    train_run(replace(planned, until=1))
    train(TrainRequest(tmp_path, settings={**settings, "lr": 0.2}, threads=1), Reporter(note=told.append))
    assert told == []
    (again,) = train(TrainRequest(tmp_path, settings=settings, threads=1), Reporter(note=told.append))
    assert again.run != "half"
    assert told == [
        "a new run is begun; half, interrupted after round 1, has the same settings and goes on by "
        f"`fedscope train --resume --name half --registry {tmp_path}`"
    ]
    train(TrainRequest(tmp_path, settings=settings, threads=1), Reporter(note=told.append))
    assert len(told) == 2  # of the finished one nothing is said


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_trial_says_what_a_training_takes_and_leaves_nothing(tmp_path: Path, rounds: int) -> None:
    registry = tmp_path / "runs"
    found = trial(TrainRequest(registry, settings={**TINY, "rounds": rounds}, threads=1, name="a"))
    assert not registry.exists()
    train(TrainRequest(registry, settings={**TINY, "rounds": rounds}, threads=1, name="a"))
    last = RunRegistry(registry).run("a").metrics()[-1]
    assert (found.rounds, found.bytes_down, found.bytes_up) == (rounds, last.bytes_down, last.bytes_up)
    assert (found.gradients, found.checkpoint_bytes) == (
        last.gradients,
        (RunRegistry(registry).run("a").initial).stat().st_size,
    )
    assert found.seconds == found.round_seconds * rounds > 0
