"""Which run stands in a cell: by its settings, whatever its name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.schema import DataSpec, Manifest, ModelSpec, Round
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.setup.resolved_settings import settled
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices, RunCell, cells
from fedscope.reproduce.recipes.spec import recipe
from fedscope.reproduce.runs.inventory import RunInventory, Training, missing, train_job


def cell(row: str, column: str = "δ = 0.3", name: str = "man/table2", scale: str = "cpu") -> RunCell:
    return next(c for c in cells(recipe(name, scale)) if (c.row, c.column) == (row, column))


def held(
    root: Path, name: str, like: RunCell, *files: str, done: int = 0, finished: bool = True, **changes: Any
) -> RunFolder:
    """Register a run of a cell's settings with some changes, done so far and with these checkpoints."""
    settings = like.settings.model_copy(update=changes)
    manifest = Manifest(
        name=name, created="2024-01-01T00:00:00.000+00:00", settings=settings, model=ModelSpec(name="m"),
        data=DataSpec(name=settings.dataset, test_samples=10_000), versions={},
    )  # fmt: skip
    run = RunRegistry(root).create(manifest)
    rounds = done or settings.rounds
    run.write_metrics([Round(round=n, accuracy=0.1, seconds=1.0) for n in range(1, rounds + 1)])
    for file in (*files, "final.pt" if finished else "last.pt"):
        (run.folder / file).touch()
    return run


def found(root: Path, wanted: RunCell, *, partial: bool = False) -> tuple[str, int] | None:
    result = RunInventory(RunRegistry(root)).find(wanted, partial=partial)
    return None if result is None else (result.entry.run.name, result.round)


def test_a_run_of_the_same_settings_counts_under_any_name(tmp_path: Path) -> None:
    wanted = cell("FedAvg")
    assert found(tmp_path, wanted) is None
    held(tmp_path, "other", wanted, "all.pt", lr=0.2)
    assert found(tmp_path, wanted) is None
    held(tmp_path, "mine", wanted, "all.pt", threads=2, save_clients="all", precision="fp32", target=None)
    assert found(tmp_path, wanted) == ("mine", 500)
    held(tmp_path, "zz", wanted, "all.pt")  # in the cell's own precision
    assert found(tmp_path, wanted) == ("zz", 500)


@pytest.mark.parametrize("change", [{"seed": 1}, {"epochs": 4}, {"alpha": 0.6}, {"eval_model": "cld"}])
def test_other_settings_are_other_experiments(tmp_path: Path, change: dict[str, Any]) -> None:
    wanted = cell("FedAvg")
    held(tmp_path, "other", wanted, "all.pt", **change)
    assert found(tmp_path, wanted, partial=True) is None


def test_options_are_settings(tmp_path: Path) -> None:
    wanted = cell("FedAvg+MAN")
    held(tmp_path, "half", wanted, "all.pt", options={**wanted.settings.options, "man.zeta": 0.075})
    assert found(tmp_path, wanted) is None


def test_a_longer_run_stands_at_the_round_that_it_kept(tmp_path: Path) -> None:
    early = cell("FedAvg", "δ = 0.3, round 150")
    held(tmp_path, "long", cell("FedAvg"), "all.pt")
    assert found(tmp_path, early) is None  # its metrics reach, its weights do not
    (tmp_path / "long" / "round-0150.pt").touch()
    assert found(tmp_path, early) == ("long", 150)
    assert found(tmp_path, cell("FedAvg")) == ("long", 500)
    curve = cell("FedSAM", "", "man/figure2")
    held(tmp_path, "curve", curve, rounds=200)
    assert found(tmp_path, curve) == ("curve", 150)  # a curve needs no weights


def test_of_longer_runs_the_one_nearest_in_length_stands(tmp_path: Path) -> None:
    curve = cell("FedSAM", "", "man/figure2")
    for name, rounds in (("a", 900), ("b", 200), ("c", 400)):
        held(tmp_path, name, curve, rounds=rounds)
    assert found(tmp_path, curve) == ("b", 150)


def test_the_mean_of_all_clients_is_of_the_newest_round_only(tmp_path: Path) -> None:
    wanted = cell("FedAvg")
    held(tmp_path, "longer", wanted, "all.pt", "round-0500.pt", rounds=600)
    assert found(tmp_path, wanted) is None


def test_what_is_not_done_counts_only_in_part(tmp_path: Path) -> None:
    wanted = cell("FedAvg")
    held(tmp_path, "begun", wanted, "all.pt", done=70, finished=False)
    assert found(tmp_path, wanted) is None
    assert found(tmp_path, wanted, partial=True) == ("begun", 70)
    held(tmp_path, "short", wanted, "all.pt", rounds=120)
    assert found(tmp_path, wanted, partial=True) == ("short", 120)


def test_a_run_killed_between_its_last_round_and_its_final_model_is_finished_first(tmp_path: Path) -> None:
    """Its last round is in the metrics, and its weights are there under the name of the newest."""
    wanted = cells(recipe("man/figure2", "cpu"))[0]
    run = held(tmp_path, "killed", wanted, "all.pt", finished=False)
    assert len(run.metrics()) == wanted.settings.rounds
    assert found(tmp_path, wanted) is None
    (job,) = missing([wanted], RunInventory(RunRegistry(tmp_path)))
    assert (job.name, job.resume) == ("killed", True)
    (run.folder / "last.pt").rename(run.final)
    assert found(tmp_path, wanted) == ("killed", wanted.settings.rounds)


def test_uploads_are_of_the_last_round(tmp_path: Path) -> None:
    wanted = cell("FedAvg", "", "fedalign/table1")
    held(tmp_path, "longer", wanted, "best.pt", "round-0020.pt", rounds=30)
    assert found(tmp_path, wanted) is None


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    run = held(tmp_path, "broken", cell("FedAvg"), "all.pt")
    path = run.folder / "manifest.json"
    path.write_text(path.read_text().replace("2024", "2025"))
    inventory = RunInventory(RunRegistry(tmp_path))
    assert inventory.find(cell("FedAvg")) is None
    assert inventory.unreadable == ["broken"]


def test_one_run_serves_all_rounds_of_an_experiment(tmp_path: Path) -> None:
    wanted = cells(recipe("man/table2", "cpu"), Choices(seeds=(83217,), rows=("FedAvg", "FedDC")))
    jobs = {job.settings.method: job for job in missing(wanted, RunInventory(RunRegistry(tmp_path)))}
    assert set(jobs) == {"fedavg", "feddc"}
    assert (jobs["fedavg"].settings.rounds, jobs["fedavg"].settings.keep_every) == (500, 150)
    assert (jobs["feddc"].settings.rounds, jobs["feddc"].settings.keep_every) == (150, 0)
    assert jobs["fedavg"].settings.save_clients == "none"
    (job,) = missing([cell("FedAvg", "", "fedalign/table1")], RunInventory(RunRegistry(tmp_path)))
    assert job.settings.save_clients == "last"


def test_without_bfloat16_new_runs_are_trained_in_fp32(tmp_path: Path) -> None:
    wanted = cell("FedDC", "δ = 0.3, round 150")
    (job,) = missing([wanted], RunInventory(RunRegistry(tmp_path)), bf16=False)
    assert (wanted.settings.precision, job.settings.precision) == ("bf16", "fp32")
    held(tmp_path, "begun", wanted, done=7, finished=False)
    (job,) = missing([wanted], RunInventory(RunRegistry(tmp_path)), bf16=False)
    assert (job.resume, job.settings.precision) == (True, "bf16")


def test_an_interrupted_run_is_continued(tmp_path: Path) -> None:
    wanted = cell("FedDC", "δ = 0.3, round 150")
    held(tmp_path, "begun", wanted, done=7, finished=False)
    (job,) = missing([wanted], RunInventory(RunRegistry(tmp_path)))
    assert (job.name, job.resume) == ("begun", True)


def test_a_diverged_run_is_neither_continued_nor_trained_again(tmp_path: Path) -> None:
    wanted = cell("FedDC", "δ = 0.3, round 150")
    run = held(tmp_path, "lost", wanted, done=7, finished=False)
    run.write_manifest(run.manifest().model_copy(update={"diverged": 7}))
    assert missing([wanted], RunInventory(RunRegistry(tmp_path))) == []
    plan = Plan((recipe("man/table2", "cpu"),), Choices(rows=("FedDC",)), BuildSettings(tmp_path, tmp_path))
    assert plan.outline().diverged == {"lost": 7}
    later = held(tmp_path, "later", wanted, done=160, finished=False, rounds=500)
    later.write_manifest(later.manifest().model_copy(update={"diverged": 160}))
    run.write_manifest(run.manifest().model_copy(update={"diverged": None}))
    (job,) = missing([wanted], RunInventory(RunRegistry(tmp_path)))
    assert (job.name, job.resume) == ("lost", True)


def test_the_command_of_a_run_gives_its_settings() -> None:
    """What is printed is read back as the command line reads it."""
    from fedscope.checkpoints.file.fields import parse
    from fedscope.checkpoints.file.settings import Settings
    from fedscope.federated.setup.paper_presets import preset

    for name, scale in (("man/table2", "cpu"), ("fedalign/table5", "cpu"), ("fedfor/figure3", "smoke")):
        for job in missing(cells(recipe(name, scale)), RunInventory(RunRegistry(Path("nowhere")))):
            words = job.command(Path("r")).split()
            flags = dict(zip(words[2::2], words[3::2], strict=True))
            sets = dict(b.split("=") for a, b in zip(words[2::2], words[3::2], strict=True) if a == "--set")
            known = {key[2:].replace("-", "_"): value for key, value in flags.items()}
            fields = {key: _typed(value) for key, value in known.items() if key in Settings.model_fields}
            values, given, _ = preset(known["preset"]).resolve(fields, sets)
            again = settled(parse(Settings, values, "option"), given)
            assert again == job.settings, job.command(Path("r"))


def _typed(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def test_a_run_with_more_rounds_is_trained_as_far_as_is_needed(tmp_path: Path) -> None:
    """Stopped at the cell's round, it stands in it, and goes on later with the same bits."""
    wanted = next(c for c in cells(recipe("man/figure2", "smoke")) if c.row == "FedAvg")
    longer = wanted.settings.model_copy(update={"rounds": 5, "keep_every": 1, "save_clients": "none"})
    for name, until in (("whole", 5), ("part", 3)):
        job = Training(name, longer, wanted.use, until, False, (wanted,))
        train_job(job, tmp_path / name, None, "cpu", 1, lambda _: None)
    inventory = RunInventory(RunRegistry(tmp_path / "part"))
    found = inventory.find(wanted)
    assert found is not None
    assert (found.round, found.entry.done) == (3, 3)
    assert not found.entry.run.final.exists()
    train_job(replace(job, until=5, resume=True), tmp_path / "part", None, "cpu", 1, lambda _: None)
    first, second = (load_checkpoint(tmp_path / name / name / "final.pt") for name in ("whole", "part"))
    assert first.sha256 == second.sha256


def test_a_run_that_diverged_counts_until_then_and_is_never_finished(tmp_path: Path) -> None:
    early, whole = cell("FedAvg", "δ = 0.3, round 150"), cell("FedAvg")
    run = held(tmp_path, "wild", whole, "all.pt", "round-0150.pt", done=200, finished=False)
    assert found(tmp_path, whole, partial=True) == ("wild", 200)
    run.write_manifest(run.manifest().model_copy(update={"diverged": 200}))
    assert found(tmp_path, whole, partial=True) is None
    assert found(tmp_path, early) == ("wild", 150)
    run.write_manifest(run.manifest().model_copy(update={"diverged": 150}))
    assert found(tmp_path, early) is None
