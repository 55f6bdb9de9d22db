import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import VerifiedCheckpoint, load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import push_run
from fedscope.data.loading.datasets import part
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.models.resnet import blocks
from fedscope.workflows.sources.problem import Problem, load, own_problem
from fedscope.workflows.sources.problems import file_or_registered, problems
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.sources.targets import Targets


def test_stochastic_depth_is_analysed_at_its_expectation(run: RunFolder, tmp_path: Path) -> None:
    plain: VerifiedCheckpoint = load_checkpoint(run.final)
    spec = plain.info.model.model_copy(update={"keep": 0.5, "schedule": "paper"})
    save_checkpoint(tmp_path / "deep.pt", plain.state, plain.info.model_copy(update={"model": spec}))
    expected, deep = load([run.final, tmp_path / "deep.pt"], Source(samples=16))
    frozen = frozen_copy(deep.model, batches=deep.batches)
    assert [block.keep for block in blocks(frozen)] == pytest.approx([5 / 6, 4 / 6, 1 / 2])
    inputs, _ = next(iter(deep.batches))
    assert not torch.allclose(frozen(inputs), expected.model(inputs))
    for block in blocks(frozen):
        block.keep = 1.0
    assert torch.equal(frozen(inputs), expected.model(inputs))


def test_a_model_that_was_sent_has_the_address_of_the_round_that_began_with_it(run: RunFolder) -> None:
    (problem,) = load([run.final], Source(samples=16))
    assert problem.info
    sent = replace(problem, info=problem.info.model_copy(update={"average": "sent", "round": 2}))
    assert sent.title == f"{problem.info.run}@3:anchor"
    uploaded = replace(problem, info=problem.info.model_copy(update={"client": 4, "round": 2}))
    assert uploaded.title == f"{problem.info.run}@2 client 4"


def test_a_run_under_another_name_is_analysed_under_it(run: RunFolder, tmp_path: Path) -> None:
    place, registry = remote(str(tmp_path / "place")), RunRegistry(tmp_path)
    push_run(run, place, lambda *_: None)
    pull_run(registry, place, run.name, lambda *_: None, "mine")
    (problem,) = load([registry.run("mine").final], Source(samples=8))
    assert problem.title.startswith("mine@")
    assert problem.checkpoint["run"] == "mine"


def test_labels_are_those_of_the_checkpoints_round(tmp_path: Path) -> None:
    settings = Settings(
        clients=2, rounds=3, epochs=1, train_samples=100, test_samples=50, keep_every=1, seed=2,
        shift="bernoulli", shift_probability=1.0,
    )  # fmt: skip
    federation = prepare(settings, {})
    run = open_run(federation, RunRegistry(tmp_path), "shifting", resume=False)
    train(federation, run, lambda _: None)
    assert federation.label_maps is not None
    for round, path in ((1, run.after_round(1)), (3, run.final)):
        (problem,) = load([path], Source())
        seen = torch.cat([targets for _, targets in problem.batches])
        used = part(federation.dataset.train, 100, 2, "train")
        assert torch.equal(seen, federation.label_maps[round - 1][federation.dataset.train.labels[used]])
    assert not torch.equal(seen, federation.dataset.train.labels[used])


def test_a_split_that_the_data_lack_is_refused(run: RunFolder) -> None:
    with pytest.raises(UserError, match="--split test"):
        load([run.final], Source(split="validation"))


def test_a_split_is_of_registered_data_alone(
    run: RunFolder, tmp_path: Path, code: Callable[[str, str], Path]
) -> None:
    code(
        "own",
        "import torch\n"
        "def net():\n    return torch.nn.Linear(4, 3)\n"
        "def data():\n    return [(torch.ones(6, 4), torch.zeros(6, dtype=torch.long))]\n",
    )
    torch.save(torch.nn.Linear(4, 3).state_dict(), tmp_path / "own.pt")
    asked = Targets(run.root, ("tiny",), split="test", samples=16, named={"split": "--split"})
    (problem,) = problems(asked)
    assert problem.description["split"] == "test"
    own = replace(asked, checkpoints=("own.pt",), model="own:net", data="own:data", samples=None)
    with pytest.raises(UserError, match="--split has no effect with --data"):
        problems(own)
    folder = replace(own, split="train", data_dir=tmp_path, named={"data_dir": "--data-dir"})
    with pytest.raises(UserError, match="--data-dir has no effect with --data"):
        problems(folder)


def test_a_file_or_a_folder_of_weights_comes_before_a_run_of_its_name(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = RunRegistry(run.root)
    assert file_or_registered("tiny", registry) == run.final
    Path("tiny").mkdir()
    assert file_or_registered("tiny", registry) == run.final
    Path("other").mkdir()
    assert file_or_registered("other", registry) == Path("other")  # which says itself what it lacks
    Path("tiny/config.json").write_text("{}")
    assert file_or_registered("tiny", registry) == Path("tiny")
    shutil.rmtree("tiny")
    Path("tiny").touch()
    assert file_or_registered("tiny", registry) == Path("tiny")
    with pytest.raises(UserError, match="'none'"):
        file_or_registered("none", registry)


def test_batches_of_unequal_lengths_are_taken_as_they_are(
    tmp_path: Path, code: Callable[[str, str], Path]
) -> None:
    """Samples of different shapes cannot be drawn from, nor put into other batches."""
    code(
        "ragged",
        "import torch\n"
        "def net():\n"
        "    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool1d(4), torch.nn.Linear(4, 3))\n"
        "def data():\n"
        "    return [(torch.randn(2, n), torch.zeros(2, dtype=torch.long)) for n in (5, 6, 7)]\n",
    )
    torch.save({"1.weight": torch.ones(3, 4), "1.bias": torch.ones(3)}, tmp_path / "net.pt")
    own = Source(model="ragged:net", data="ragged:data")
    (problem,) = load([tmp_path / "net.pt"], own)
    assert [tuple(inputs.shape) for inputs, _ in problem.batches] == [(2, 5), (2, 6), (2, 7)]
    for asked in (replace(own, samples=3), replace(own, batch_size=3)):
        with pytest.raises(UserError):
            load([tmp_path / "net.pt"], asked)


def test_parameters_without_a_gradient_are_said_to_be_left_out(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    batches = Batches(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    problem = Problem(model, cross_entropy, batches, Source(data="mine:data"), tmp_path / "w.pt", "", None)
    assert own_problem(problem).notes == ("left out 16 parameters that require no gradient; 10 are analysed",)
    model.requires_grad_(True)
    assert own_problem(problem).notes == ()
