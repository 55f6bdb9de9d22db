"""One round in K is evaluated, and the last: nothing else about a run changes."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import fedscope as fs
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.best import best
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.cli.main import call
from fedscope.federated.server.run_summary import summary
from fedscope.figures.runs.drawings import draw
from fedscope.workflows.run_records import run_records
from tests.federated.runs import interrupted, resumed, trained

SETTINGS = Settings(
    method="feddyn", clients=3, rounds=5, epochs=1, model="mlp_digits", train_samples=200, test_samples=50,
    participation=0.7, eval_model="all", validation=0.1, save_clients="all", lr=0.1,
)  # fmt: skip
SELDOM = SETTINGS.model_copy(update={"evaluate_every": 2})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    root = tmp_path_factory.mktemp("runs")
    return trained(root, SETTINGS, name="each"), trained(root, SELDOM, name="seldom")


def accuracies(run: RunFolder) -> list[float | None]:
    return [line.accuracy for line in run.metrics()]


def test_only_every_second_round_and_the_last_have_scores(runs: tuple[RunFolder, RunFolder]) -> None:
    each, seldom = runs
    whole = accuracies(each)
    assert accuracies(seldom) == [None, whole[1], None, whole[3], whole[4]]
    for line, other in zip(seldom.metrics(), each.metrics(), strict=True):
        scored = line.accuracy is not None
        assert (line.loss is not None, bool(line.accuracies), line.validation is not None) == (scored,) * 3
        assert line.train_loss == other.train_loss
        assert line.diagnostics
        assert bool(line.diagnostics.class_accuracy) == scored
        assert (line.seconds_in["evaluation"] > 0) == scored


def test_the_models_are_the_same_and_the_registry_finds_no_fault(runs: tuple[RunFolder, RunFolder]) -> None:
    each, seldom = runs
    for name in ("final.pt", "all.pt"):
        models = [load_checkpoint(run.folder / name) for run in (each, seldom)]
        assert models[0].sha256 == models[1].sha256
        assert models[0].info.metrics == models[1].info.metrics
    assert list(verify_run(seldom)) == []


def test_the_best_is_that_of_the_evaluated_rounds(runs: tuple[RunFolder, RunFolder]) -> None:
    seldom = runs[1]
    top = best(seldom.metrics())
    assert top
    assert load_checkpoint(seldom.best).info.round == top.round
    assert top.round in (2, 4, 5)
    found = summary(SELDOM.model_copy(update={"target": 0.01}), seldom.metrics())
    assert found.rounds_to_target == 2
    assert found.best_half_accuracy == seldom.metrics()[1].accuracy


def test_a_run_that_is_cut_between_two_evaluations_goes_on_with_the_same_bits(
    runs: tuple[RunFolder, RunFolder], tmp_path: Path
) -> None:
    cut = interrupted(tmp_path, SELDOM, after=3)
    resumed(tmp_path, SELDOM)
    assert accuracies(cut) == accuracies(runs[1])
    models = [path for path in cut.folder.rglob("*.pt") if path.name != "server.pt"]
    for path in models:
        name = path.relative_to(cut.folder)
        whole, again = load_checkpoint(runs[1].folder / name), load_checkpoint(path)
        assert (whole.sha256, whole.info.metrics) == (again.sha256, again.info.metrics), name


@pytest.mark.usefixtures("at_once")
def test_workers_leave_out_the_same_rounds(tmp_path: Path) -> None:
    words = ["train", "--clients", "3", "--rounds", "3", "--epochs", "1", "--model", "mlp_digits",
             "--evaluate-every", "2", "--threads", "1", "--registry", str(tmp_path), "--name"]  # fmt: skip
    for workers in ("1", "2"):
        assert call([*words, workers, "--workers", workers]) == 0
    one, two = (RunFolder(tmp_path / workers) for workers in ("1", "2"))
    assert accuracies(one) == accuracies(two)
    assert [a is None for a in accuracies(one)] == [True, False, False]
    assert load_checkpoint(one.final).sha256 == load_checkpoint(two.final).sha256


def test_a_round_that_was_not_evaluated_tells_its_training_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--clients", "2", "--rounds", "2", "--epochs", "1", "--model", "mlp_digits", "--name", "a"]
    assert call(["train", *words, "--evaluate-every", "2", "--registry", str(tmp_path)]) == 0
    first, second, *_ = (line for line in capsys.readouterr().err.splitlines() if "round" in line)
    assert "round 1/2: training loss" in first
    assert "accuracy" not in first
    assert "round 2/2: accuracy" in second


def test_a_training_that_diverges_is_evaluated_where_it_ends(tmp_path: Path) -> None:
    run = trained(tmp_path, Settings(clients=2, rounds=3, epochs=1, lr=1e30, evaluate_every=3))
    (only,) = run.metrics()
    assert run.manifest().diverged == 1
    assert only.accuracy is not None


def test_shifts_take_every_round() -> None:
    with pytest.raises(ValidationError, match="leave --evaluate-every out"):
        Settings(shift="bernoulli", evaluate_every=2)


def test_a_line_connects_the_rounds_that_were_evaluated(
    runs: tuple[RunFolder, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = fs.Registry(runs[1].folder.parent)["seldom"].plot().lines
    assert np.array_equal(line.get_xdata(), [2, 4, 5])
    monkeypatch.chdir(tmp_path)
    both = ["each", "seldom", "--registry", str(runs[0].folder.parent)]
    own = run_records(RunRegistry(runs[1].folder.parent), ["seldom"])
    drawn = draw(own, "accuracy").axes[0].lines[0]
    assert np.array_equal(drawn.get_xdata(), [2, 4, 5])
    for kind in ("accuracy", "bytes"):
        assert call(["plot-runs", *both, "--kind", kind, "--out", f"{kind}.png"]) == 0
