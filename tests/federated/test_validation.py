from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.fields import OPTION, parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.data.sets.dataset_catalogue import load as load_data
from fedscope.errors import UserError
from fedscope.federated.parallel.evaluation import EvaluationScore, score_sums
from fedscope.federated.server.run_rounds import train
from fedscope.federated.server.run_summary import summary
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source
from tests.federated.runs import interrupted, resumed, trained

SETTINGS = Settings(
    clients=3, rounds=3, epochs=1, train_samples=300, test_samples=60, seed=5, partition="iid", alpha=None,
    validation=0.2, keep_every=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that held a fifth of its rows out of training."""
    return trained(tmp_path_factory.mktemp("registry"), SETTINGS)


def test_held_out_rows_are_stored_and_never_trained_on(run: RunFolder) -> None:
    federation, known = prepare(SETTINGS, {}), run.manifest().rows
    assert known
    assert (known.counts, known.validation) == ((80, 80, 80), 60)
    assert not set(torch.cat(federation.rows).tolist()) & set(federation.held_out.tolist())
    assert torch.equal(prepare(SETTINGS, {}, run=run).held_out, federation.held_out)
    assert load_checkpoint(run.final).info.samples == 240
    assert not list(verify_run(run))


def test_each_round_is_validated(run: RunFolder) -> None:
    federation = prepare(SETTINGS, {})
    assert federation.validation
    for record in run.metrics():
        kept = load_checkpoint(run.after_round(record.round))
        federation.model.load_state_dict(kept.state)
        score = EvaluationScore.from_sums(
            score_sums(federation.model, federation.validation, federation.pipeline), ()
        )
        assert record.validation
        assert record.validation.to_json() == pytest.approx({"accuracy": score.accuracy, "loss": score.loss})


def test_the_best_round_is_chosen_on_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later round is better on the test set than the first, which is best on the rows held out."""
    validated = iter([0.7, 0.2, 0.5])
    monkeypatch.setattr(
        "fedscope.federated.parallel.training_round.TrainingRound.validate",
        lambda *_: EvaluationScore(1.0, next(validated)),
    )
    settings = SETTINGS.model_copy(update={"epochs": 3, "lr": 0.2})
    done = trained(tmp_path, settings)
    metrics = done.metrics()
    accuracies = [m.accuracy or 0.0 for m in metrics]
    assert accuracies[0] < max(accuracies)
    assert load_checkpoint(done.best).info.round == 1
    found = summary(settings, metrics)
    assert (found.best_accuracy, found.chosen_on) == (accuracies[0], "validation")
    (row,) = RunRegistry(tmp_path).rows()
    assert row["best"] == accuracies[0]
    assert not list(verify_run(done))


def test_it_goes_on_with_the_same_bits(run: RunFolder, tmp_path: Path) -> None:
    cut = interrupted(tmp_path, SETTINGS)
    resumed(tmp_path, SETTINGS)
    assert load_checkpoint(cut.final).sha256 == load_checkpoint(run.final).sha256
    assert load_checkpoint(cut.best).info.round == load_checkpoint(run.best).info.round
    assert [m.validation for m in cut.metrics()] == [m.validation for m in run.metrics()]
    whole = prepare(SETTINGS.model_copy(update={"validation": 0.0}), {})
    with pytest.raises(UserError, match="validation"):
        open_run(whole, RunRegistry(tmp_path), "cut", resume=True)


def test_analyses_leave_the_held_out_rows_out_or_take_them_alone(run: RunFolder) -> None:
    federation, images = prepare(SETTINGS, {}), load_data("digits").train.images
    (on_train,) = load([run.final], Source())
    (on_held_out,) = load([run.final], Source(split="validation"))
    assert (on_train.batches.samples, on_held_out.batches.samples) == (240, 60)
    inputs = torch.cat([x for x, _ in on_held_out.batches])
    assert torch.equal(inputs, federation.pipeline.test(images, federation.held_out))
    for client in Participants(on_train, "client", "own"):
        assert client.rows is not None
        assert torch.equal(client.rows, federation.rows[client.number])


def test_labels_of_held_out_rows_shift_too(tmp_path: Path) -> None:
    shifting = SETTINGS.model_copy(update={"shift": "bernoulli", "shift_probability": 1.0, "rounds": 2})
    federation = prepare(shifting, {})
    done = open_run(federation, RunRegistry(tmp_path), "shifting", resume=False)
    train(federation, done, lambda _: None)
    (problem,) = load([done.final], Source(split="validation"))
    maps = federation.label_maps
    assert maps is not None
    assert load_checkpoint(done.final).info.labels == tuple(maps[1].tolist())
    labels = torch.cat([y for _, y in problem.batches])
    assert torch.equal(labels, maps[1][federation.dataset.train.labels[federation.held_out]])


def test_one_validation_split_is_enough() -> None:
    with pytest.raises(UserError, match="leave it out"):
        parse(Settings, {"validation": 0.1, "evaluate_on": "validation"}, OPTION)
