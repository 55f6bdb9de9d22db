from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.schema import Settings
from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.data.loading.datasets import part
from fedscope.federated.server.rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.models.resnet import blocks
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source


def test_stochastic_depth_is_analysed_at_its_expectation(run: Run, tmp_path: Path) -> None:
    plain: Checkpoint = load_checkpoint(run.final)
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


def test_labels_are_those_of_the_checkpoints_round(tmp_path: Path) -> None:
    settings = Settings(
        clients=2, rounds=3, epochs=1, train_samples=100, test_samples=50, keep_every=1, seed=2,
        shift="bernoulli", shift_probability=1.0,
    )  # fmt: skip
    federation = prepare(settings, {})
    run = open_run(federation, Registry(tmp_path), "shifting", resume=False)
    train(federation, run, lambda _: None)
    assert federation.label_maps is not None
    for round, path in ((1, run.kept(1)), (3, run.final)):
        (problem,) = load([path], Source())
        seen = torch.cat([targets for _, targets in problem.batches])
        used = part(federation.dataset.train, 100, 2, "train")
        assert torch.equal(seen, federation.label_maps[round - 1][federation.dataset.train.labels[used]])
    assert not torch.equal(seen, federation.dataset.train.labels[used])
