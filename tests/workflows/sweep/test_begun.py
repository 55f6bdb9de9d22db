"""A run that is there goes on, or counts as done, only with the options that it began with."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.workflows.sweep.begun import check_begun
from fedscope.workflows.sweep.jobs import Job


@pytest.fixture
def unfinished(run: RunFolder) -> Iterator[RunFolder]:
    """The run ``tiny`` as an interruption leaves it."""
    final = run.final.read_bytes()
    run.final.unlink()
    yield run
    run.final.write_bytes(final)


def training(run: RunFolder, *options: str, name: str = "", threads: int = 1) -> Job:
    common = ("--registry", str(run.root), "--threads", str(threads), "--name", name or run.name)
    return Job("g/a", ("train", *options, *common, "--json", "out/g/a.json"))


LINE = ("--rounds", "40", "--lr", "0.05", "--nesterov")


def finish(run: RunFolder) -> None:
    run.final.write_bytes(b"")


@pytest.mark.parametrize("finished", [False, True])
def test_other_options_are_refused_and_nothing_is_overwritten(
    unfinished: RunFolder, tmp_path: Path, finished: bool
) -> None:
    begun, edited = training(unfinished, *LINE), training(unfinished, "--rounds", "20", "--lr", "0.05")
    begun.begin(tmp_path)
    if finished:
        finish(unfinished)
        begun.finish(tmp_path)
    before = begun.kept(tmp_path)
    with pytest.raises(UserError) as refused:
        check_begun([edited], tmp_path)
    assert str(refused.value) == (
        "g/a: the run tiny began with other options: --rounds 40 → 20, --nesterov given → not given; restore "
        "the file, delete the run (`fedscope runs delete tiny`), or give the group of jobs another name"
    )
    assert begun.kept(tmp_path) == before
    assert begun.done(tmp_path) is finished
    assert not edited.done(tmp_path)
    check_begun([begun], tmp_path)


def test_every_value_of_a_repeated_option_counts(unfinished: RunFolder, tmp_path: Path) -> None:
    rest = ("--set", "man.half=true")
    training(unfinished, "--set", "man.zeta=0.1", *rest).begin(tmp_path)
    said = "--set man.zeta=0.1 man.half=true → man.zeta=0.5 man.half=true"
    with pytest.raises(UserError, match=said):
        check_begun([training(unfinished, "--set", "man.zeta=0.5", *rest)], tmp_path)


def test_what_does_not_belong_to_the_run_may_change(unfinished: RunFolder, tmp_path: Path) -> None:
    training(unfinished, *LINE).begin(tmp_path)
    other = training(unfinished, "--nesterov", "--lr", "0.05", "--rounds", "40", threads=2)
    check_begun([other], tmp_path)
    finish(unfinished)
    assert other.done(tmp_path)


def test_another_device_is_another_training(unfinished: RunFolder, tmp_path: Path) -> None:
    training(unfinished, *LINE).begin(tmp_path)
    with pytest.raises(UserError, match="--device not given → cuda"):
        check_begun([training(unfinished, *LINE, "--device", "cuda")], tmp_path)


def test_a_run_of_somebody_else_is_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"g/a: the run tiny is there, and this sweep has not begun it; dele"):
        check_begun([training(run, *LINE)], tmp_path)


def test_several_are_counted(unfinished: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"another name \(and 2 more jobs\)$"):
        check_begun([training(unfinished, "--lr", lr) for lr in ("1", "2", "3")], tmp_path)


def test_after_its_run_is_deleted_a_job_begins_anew(run: RunFolder, tmp_path: Path) -> None:
    job = training(run, *LINE, name="gone")
    job.finish(tmp_path)
    edited = training(run, "--rounds", "20", name="gone")
    check_begun([job, edited], tmp_path)
    assert not job.done(tmp_path)
    assert job.now() == job.words


def test_measurements_take_other_options(tmp_path: Path) -> None:
    Job("g/a", ("hessian", "tiny", "--tol", "0.1")).finish(tmp_path)
    edited = Job("g/a", ("hessian", "tiny", "--tol", "0.01"))
    check_begun([edited], tmp_path)
    assert not edited.done(tmp_path)


@pytest.fixture
def of_seeds(run: RunFolder, tmp_path: Path) -> RunRegistry:
    """A registry with seed 0 finished and seed 1 interrupted."""
    for name in ("several-s0", "several-s1"):
        shutil.copytree(run.folder, tmp_path / "runs" / name)
    registry = RunRegistry(tmp_path / "runs")
    registry.run("several-s1").final.unlink()
    return registry


def several(registry: RunRegistry, *options: str) -> Job:
    return Job("g/a", ("train", *options, "--registry", str(registry.root), "--name", "several"))


def test_interrupted_seeds_are_resumed_until_all_are_finished(of_seeds: RunRegistry, tmp_path: Path) -> None:
    job = several(of_seeds, "--lr", "0.05", "--seeds", "0,1")
    job.begin(tmp_path)
    check_begun([job], tmp_path)
    assert not job.done(tmp_path)
    shared = ("--registry", str(of_seeds.root), "--name", "several")
    assert job.now() == ("train", "--resume", "--seeds", "0,1", *shared)
    finish(of_seeds.run("several-s1"))
    assert job.now() == job.words
    assert job.done(tmp_path)
    job.forget(tmp_path)
    assert job.done(tmp_path)  # --again trains nothing


def test_a_seed_more_is_trained_like_those_that_are_there(of_seeds: RunRegistry, tmp_path: Path) -> None:
    several(of_seeds, "--seeds", "0,1").begin(tmp_path)
    finish(of_seeds.run("several-s1"))
    more = several(of_seeds, "--seeds", "0,1,2")
    check_begun([more], tmp_path)
    assert not more.done(tmp_path)
    assert more.now()[:4] == ("train", "--resume", "--seeds", "0,1,2")


def test_seeds_that_began_with_other_options_are_refused(of_seeds: RunRegistry, tmp_path: Path) -> None:
    several(of_seeds, "--lr", "0.05", "--seeds", "0,1").begin(tmp_path)
    said = r"the run several-s0 began with other options: --lr 0.05 → 1; .*delete several-s0 several-s1`"
    with pytest.raises(UserError, match=said):
        check_begun([several(of_seeds, "--lr", "1", "--seeds", "0,1")], tmp_path)


def test_a_resumed_training_keeps_what_is_not_the_runs(unfinished: RunFolder, tmp_path: Path) -> None:
    device = ("--device", "cpu")
    how = (*device, "--log", "wandb", "--workers", "2", "--tensorboard", "--log", "mlflow")
    begun = training(unfinished, *LINE, *device)
    begun.begin(tmp_path)
    job = training(unfinished, *LINE, *how)
    check_begun([job], tmp_path)
    assert job.now()[:2] == ("train", "--resume")
    assert set(job.now()[2:]) == {*job.words[1:]} - {*LINE, "--threads", "1"}
    assert job.now()[2 : 2 + len(how)] == how
