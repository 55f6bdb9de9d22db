from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.files import Checkpoint, load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry import Run
from fedscope.landscape.normalization import frozen_copy
from fedscope.landscape.problem import Source, load
from fedscope.models.resnet import blocks


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
