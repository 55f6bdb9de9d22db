"""Landscapes from Python."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from mpl_toolkits.mplot3d import Axes3D
from torch import nn

import fedscope
from fedscope.errors import UserError

INPUTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 4


def test_runs_have_a_plane_each(registry: Path, tmp_path: Path) -> None:
    found = fedscope.landscape("a", "b", registry=registry, samples=32, grid=5)
    assert len(found) == 2
    assert [one["schema"] for one in found.to_dict()] == ["fedscope/landscape/1"] * 2
    assert found[0].to_dict()["checkpoint"]["run"] == "a"
    assert "eigenvector 1 (5) × eigenvector 2 (5)" in repr(found)
    assert isinstance(found.plot(kind="surface"), Axes3D)
    axes = found.plot(kind="heat", place=1)
    assert axes.get_title() == "FedSAM"
    with pytest.raises(UserError, match="projection"):
        found.plot(axes, kind="surface")
    with pytest.raises(UserError, match=r"plt.subplots\(\)"):
        found.plot(pyplot.figure().add_subplot(projection="3d"))
    found.save(tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 10_000


def test_a_line_between_rounds_is_a_curve(registry: Path) -> None:
    run = fedscope.Registry(registry)["a"]
    found = fedscope.landscape(run.at(1), run, directions="line", samples=32, grid=5)
    axes = found.plot()
    assert axes.get_ylabel() == "loss"
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == pytest.approx(list(found.records[0].loss))


def test_a_network_is_surrounded_by_its_own_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    found = fedscope.landscape(
        model, data=(INPUTS, LABELS), directions="random", grid=3, metrics=["accuracy"]
    )
    (record,) = found.records
    loss = nn.functional.cross_entropy(model(INPUTS), LABELS)
    assert record.loss[1][1] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert record.metrics["accuracy"][1][1] == pytest.approx(
        float((model(INPUTS).argmax(1) == LABELS).float().mean())
    )
    with pytest.raises(UserError, match="save the networks first"):
        fedscope.landscape(model, model, data=(INPUTS, LABELS), directions="line")


def test_the_module_is_the_analysis_and_the_function() -> None:
    import fedscope.landscape as analysis
    from fedscope.landscape import Hessian

    assert callable(analysis)
    assert analysis is fedscope.landscape
    assert analysis.Hessian is Hessian
