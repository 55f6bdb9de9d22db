"""Several checkpoints or networks beside each other, from Python."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from torch import nn

import fedscope
from fedscope.errors import UserError
from fedscope.records.differences import differences

INPUTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 4


def test_runs_are_compared_on_the_same_samples(registry: Path) -> None:
    found = fedscope.compare("a", "b", registry=registry, samples=64, probes=4)
    assert [one.record.checkpoint.run for one in found.curvatures] == ["a", "b"]
    (row,) = found.differences
    alone = differences(found[0].record, found[1].record)
    assert [one.value for one in row] == [one.value for one in alone]
    assert row[0].value == found[1].lambda_max.value - found[0].lambda_max.value or row[0].bound > 0
    first, second = found.to_dict()
    assert "differences" not in first
    assert [one["quantity"] for one in second["differences"]] == ["λ_max", "trace"]
    assert repr(found).startswith("Difference to a@2")
    measured = [fedscope.measure(name, registry=registry, samples=64, probes=4) for name in "ab"]
    assert fedscope.compare(*measured).differences == found.differences
    assert fedscope.compare(measured[0], "b", registry=registry, samples=64, probes=4).differences == [row]


def test_a_comparison_is_drawn_with_its_intervals(registry: Path) -> None:
    found = fedscope.compare("a", "b", registry=registry, samples=64, probes=4)
    axes = found.plot(quantity="trace")
    (label,) = axes.get_yticklabels()
    assert label.get_text() == "FedSAM"
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    bars = [found for found in axes.collections if isinstance(found, LineCollection)]
    drawn += [np.asarray(piece)[:, 0].tolist() for some in bars for piece in some.get_segments()]
    assert pytest.approx(list(found.differences[0][1].interval)) in drawn
    assert len(found.figure("bars").axes) == 2
    with pytest.raises(UserError, match=r"not compared in 'H_N'; choose one of λ_max, trace"):
        found.plot(quantity="H_N")


def test_networks_are_compared_too() -> None:
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        models.append(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)))
    found = fedscope.compare(*models, models[0], data=(INPUTS, LABELS))
    assert len(found) == 3
    assert found.differences[1][0].value == 0
    names = [line.split()[0] for line in repr(found).splitlines()]
    assert names == ["Difference", "checkpoint", "Sequential-2", "Sequential-3"]
    with pytest.raises(UserError, match="two or more"):
        fedscope.compare(models[0], data=(INPUTS, LABELS))
