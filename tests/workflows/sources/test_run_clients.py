import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.data.augment import Pipeline
from fedscope.data.partition.division import Divided
from fedscope.data.sets import dataset_catalogue
from fedscope.data.sets.dataset_catalogue import pipeline
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, open_run, prepare
from fedscope.streams import numpy_stream, torch_stream
from fedscope.workflows.requests import Resampling
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.run_clients import (
    UPLOADS,
    ClientOrigin,
    Participants,
    client_files,
    loader,
    round_uploads,
)
from fedscope.workflows.sources.samples import Source

SETTINGS = Settings(
    clients=3, rounds=3, epochs=1, train_samples=200, test_samples=50, keep_every=1, seed=4, batch_size=16,
    partition="iid", alpha=None, participation=0.7, shift="bernoulli", shift_probability=1.0,
    save_clients="all",
)  # fmt: skip


@pytest.fixture(scope="module")
def shifting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, RunFolder]:
    """Labels that shift in every round, and clients whose last uploads are of different rounds."""
    federation = prepare(SETTINGS, {})
    run = open_run(federation, RunRegistry(tmp_path_factory.mktemp("registry")), "shifting", resume=False)
    train(federation, run, lambda _: None)
    return federation, run


def _problem(path: Path, samples: int | None = None) -> Problem:
    return load([path], Source(samples=samples))[0]


def test_own_rows_are_those_trained_on(shifting: tuple[Federation, RunFolder]) -> None:
    federation, run = shifting
    maps = federation.label_maps
    assert maps is not None
    split, (_, prepared) = federation.dataset.train, pipeline("digits")
    participants = list(Participants(_problem(run.final), "client", "own"))
    assert len({client.info.round for client in participants if client.info}) > 1
    for client in participants:
        assert client.info
        rows = federation.rows[client.number]
        assert client.rows is not None
        assert torch.equal(client.rows, rows)
        inputs, labels = (torch.cat(parts) for parts in zip(*client.batches, strict=True))
        assert torch.equal(inputs, prepared.test(split.images, rows))
        assert torch.equal(labels, maps[client.info.round - 1][split.labels[rows]])


def test_own_rows_are_drawn_by_the_number_of_samples(shifting: tuple[Federation, RunFolder]) -> None:
    federation, run = shifting
    for client in Participants(_problem(run.final, 20), "client", "own"):
        inputs = torch.cat([x for x, _ in client.batches])
        assert len(inputs) == 20
        held = pipeline("digits")[1].test(federation.dataset.train.images, federation.rows[client.number])
        assert all(any(torch.equal(x, y) for y in held) for x in inputs)


def test_weights_are_the_clients_or_the_global_ones(shifting: tuple[Federation, RunFolder]) -> None:
    _, run = shifting
    problem = _problem(run.final)
    common = list(Participants(problem, "global", "own"))
    assert [client.number for client in common] == [0, 1, 2]
    assert all(client.model is problem.model for client in common)
    own = list(Participants(problem, "client", "global"))
    assert all(client.batches is problem.batches for client in own)
    weights = [next(client.model.parameters()) for client in own]
    assert not torch.equal(weights[0], weights[1])
    with pytest.raises(UserError, match="add --client-data own"):
        Participants(problem, "global", "global")


def test_uploads_are_of_the_checkpoints_round_or_the_latest(shifting: tuple[Federation, RunFolder]) -> None:
    _, run = shifting
    early = _problem(run.after_round(2))
    by_then = [client.info.round for client in Participants(early, "client", "own") if client.info]
    latest = [
        client.info.round for client in Participants(early, "client", "own", latest=True) if client.info
    ]
    assert max(by_then) == 2
    assert max(latest) == 3


def test_fresh_clients_hold_other_rows_in_each_round(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    settings = Settings(
        clients=4, rounds=2, epochs=1, test_samples=50, seed=1, partition="longtail_stateless", phi=0.1,
        rho=0.2, alpha=None, keep_every=1, save_clients="all", participation=0.5,
    )  # fmt: skip
    federation = prepare(settings, {})
    run = open_run(federation, RunRegistry(tmp_path), "fresh", resume=False)
    train(federation, run, lambda _: None)
    held = {round: federation.rows_in(round) for round in (1, 2)}
    request.getfixturevalue("other_streams")
    for path, rounds in ((run.after_round(1), {1}), (run.final, {1, 2})):
        of = set()
        for client in Participants(_problem(path), "client", "own"):
            assert client.rows is not None
            assert client.info
            assert torch.equal(client.rows, held[client.info.round][client.number])
            of.add(client.info.round)
        assert of == rounds


def test_what_is_not_known_is_refused(
    shifting: tuple[Federation, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = shifting
    problem = _problem(run.final)
    tested = replace(problem, source=replace(problem.source, split="test"))
    with pytest.raises(UserError, match="use --client-data global"):
        Participants(tested, "client", "own")
    with pytest.raises(UserError, match="plain state_dict"):
        Participants(replace(problem, info=None), "global", "own")
    with pytest.raises(UserError, match="--save-clients last"):
        Participants(replace(problem, path=tmp_path / "final.pt"), "client", "global")
    monkeypatch.setattr("fedscope.workflows.sources.samples.divided", lambda *_: NOTHING)
    with pytest.raises(UserError, match="client 0 "):
        Participants(_forgetful(problem), "client", "own")


NOTHING = Divided([torch.arange(0)] * 3, torch.arange(0))


def _forgetful(problem: Problem) -> Problem:
    """Return the problem as of a run of a time when nobody stored the clients' rows."""
    assert problem.info
    return replace(problem, info=problem.info.model_copy(update={"rows": ""}))


@pytest.fixture
def other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are drawn otherwise, as a new numpy may draw them."""
    drawn = numpy_stream

    def stream(seed: int, *key: Any) -> np.random.Generator:
        return drawn(seed + 1, *key)

    monkeypatch.setattr("fedscope.data.partition.draw_partition.numpy_stream", stream)


@pytest.mark.usefixtures("other_streams")
def test_stored_rows_outlive_the_streams_that_drew_them(shifting: tuple[Federation, RunFolder]) -> None:
    federation, run = shifting
    participants = Participants(_problem(run.final), "global", "own")
    for client in participants:
        assert client.rows is not None
        assert torch.equal(client.rows, federation.rows[client.number])
    known = run.manifest().rows
    assert known
    assert participants.origin() == ClientOrigin({}, "stored", known.sha256)


@pytest.mark.usefixtures("other_streams")
def test_a_checkpoint_elsewhere_is_refused_where_its_rows_are_drawn_otherwise(
    shifting: tuple[Federation, RunFolder], tmp_path: Path
) -> None:
    _, run = shifting
    copy = Path(shutil.copy(run.final, tmp_path / "copy.pt"))
    with pytest.raises(UserError, match="RUN in its registry"):
        Participants(_problem(copy), "global", "own")


def test_a_checkpoint_elsewhere_has_its_rows_drawn_again(
    shifting: tuple[Federation, RunFolder], tmp_path: Path
) -> None:
    federation, run = shifting
    copy = Path(shutil.copy(run.final, tmp_path / "copy.pt"))
    participants = Participants(_problem(copy), "global", "own")
    assert participants.origin().rows == "stored"
    assert torch.equal(participants.rows(2, participants._info), federation.rows[2])


@pytest.mark.usefixtures("other_streams")
def test_rows_of_an_older_run_are_drawn_again_and_it_says_so(shifting: tuple[Federation, RunFolder]) -> None:
    federation, run = shifting
    participants = Participants(_forgetful(_problem(run.final)), "global", "own")
    assert participants.origin().rows == "redrawn"
    assert not torch.equal(participants.rows(0, participants._info), federation.rows[0])
    stored = Participants(_problem(run.final), "global", "own")
    assert participants.origin().rows_sha256 != stored.origin().rows_sha256
    assert participants.fingerprint() != stored.fingerprint()


def test_the_published_loader_goes_over_the_training_data(shifting: tuple[Federation, RunFolder]) -> None:
    federation, run = shifting
    problem = _problem(run.final, 20)
    whole = loader(problem, Resampling())
    assert (whole.samples, whole.batch_size, whole.batches) == (200, 16, 10)
    assert loader(problem, Resampling(batch_size=64, batches=None)).batches == 3
    assert loader(problem, Resampling(samples=40)).samples == 40
    assert problem.info
    maps = federation.label_maps
    assert maps is not None
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    used = torch.cat(federation.rows).sort().values
    labels = torch.cat([targets for _, targets in whole()])
    assert torch.equal(labels, maps[2][federation.dataset.train.labels[used[order[:160]]]])
    for client in Participants(problem, "client", "own"):
        assert loader(problem, Resampling(), client).samples == len(federation.rows[client.number])


def _augmenting(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Let every data set be augmented; return the pipeline."""
    recipe = Pipeline((0.3,), (0.4,), flip=0.5, crop=1.0, padding=1)
    monkeypatch.setattr("fedscope.data.sets.dataset_catalogue.pipeline", lambda *_: ("augmenting", recipe))
    return recipe


def test_the_published_loader_augments_as_the_run_did(
    shifting: tuple[Federation, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, run = shifting
    recipe = _augmenting(monkeypatch)
    problem = _problem(run.final)
    first = next(iter(loader(problem, Resampling())()))[0]
    again = next(iter(loader(problem, Resampling())()))[0]
    plain = next(iter(loader(problem, Resampling(augment=False))()))[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, plain)
    generator = torch.Generator().manual_seed(1)
    rows = torch.cat(federation.rows).sort().values[torch.randperm(200, generator=generator)[:16]]
    images = federation.dataset.train.images
    assert torch.equal(plain, recipe.test(images, rows))
    assert torch.equal(first, recipe.train(images, rows, recipe.draw(16, generator)))


def test_samples_are_augmented_once_where_it_is_asked_for(
    shifting: tuple[Federation, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, run = shifting
    recipe = _augmenting(monkeypatch)
    (plain,) = load([run.final], Source(samples=20, seed=3))
    (problem,) = load([run.final], Source(samples=20, seed=3, augment=True))
    (again,) = load([run.final], Source(samples=20, seed=3, augment=True))
    inputs, labels = next(iter(problem.batches))
    assert torch.equal(inputs, next(iter(again.batches))[0])
    assert torch.equal(labels, next(iter(plain.batches))[1])  # the same samples, in the same order
    assert not torch.equal(inputs, next(iter(plain.batches))[0])
    images = federation.dataset.train.images
    assert problem.rows is not None
    draws = recipe.draw(20, torch_stream(3, "analysis augmentation"))
    assert torch.equal(inputs, recipe.train(images, problem.rows, draws))
    assert problem.description["augmented"]
    assert "augmented" not in plain.description


def test_images_get_the_constants_that_are_asked_for(
    shifting: tuple[Federation, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Pipeline((0.1,), (0.7,))
    named = {"other": ("other", other)}
    monkeypatch.setattr(
        dataset_catalogue, "pipeline", lambda data, name: named.get(name) or pipeline(data, name)
    )
    federation, run = shifting
    (plain,) = load([run.final], Source(samples=20, seed=3))
    (problem,) = load([run.final], Source(samples=20, seed=3, normalisation="other"))
    inputs = next(iter(problem.batches))[0]
    assert problem.rows is not None
    assert torch.equal(inputs, other.test(federation.dataset.train.images, problem.rows))
    assert not torch.equal(inputs, next(iter(plain.batches))[0])
    assert problem.description["normalisation"] == "other"
    assert "normalisation" not in plain.description


def test_the_published_loaders_draw_is_that_of_the_analysis(shifting: tuple[Federation, RunFolder]) -> None:
    """As many samples are the same ones in both readings, the run's and each client's."""
    problem = _problem(shifting[1].final, 20)
    asked = Resampling(samples=20, batch_size=20, augment=False)
    own = [(client, client.batches) for client in Participants(problem, "client", "own")]
    for client, batches in ((None, problem.batches), *own):
        drawn, analysed = (
            torch.cat([inputs for inputs, _ in of]) for of in (loader(problem, asked, client)(), batches)
        )
        assert torch.equal(drawn.flatten(1).unique(dim=0), analysed.flatten(1).unique(dim=0))


def test_rounds_can_be_compared_whose_uploads_of_two_clients_were_kept(
    run: RunFolder, tmp_path: Path
) -> None:
    copied = RunFolder(tmp_path / run.name)
    shutil.copytree(run.folder, copied.folder)
    assert UPLOADS.of(copied) == [2]  # the last round alone kept them
    for path in copied.clients()[1:]:
        path.unlink()
    assert UPLOADS.of(copied) == []


def test_a_network_of_ones_own_has_the_uploads_of_its_round_too(
    shifting: tuple[Federation, RunFolder],
) -> None:
    _, run = shifting
    problem = _problem(run.after_round(2))
    own = replace(problem, info=None, registered=problem.info)
    assert client_files(own) == client_files(problem) != client_files(problem, latest=True)
    assert round_uploads(own) == round_uploads(problem)
