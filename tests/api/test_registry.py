"""The registry, its runs and checkpoints from Python; and the report of them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from torch import nn

import fedscope
from fedscope.api.sources import registry_folder
from fedscope.errors import UserError


def test_a_registry_is_a_collection_of_runs(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = fedscope.Registry(registry)
    assert [run.name for run in runs] == ["a", "b"]
    assert (len(runs), "a" in runs, "c" in runs, 3 in runs, runs.newest.name) == (2, True, False, False, "b")
    assert repr(runs).count("FedAvg") == 1
    assert [one["manifest"]["name"] for one in runs.to_dict()] == ["a", "b"]
    with pytest.raises(UserError, match="no run 'c'"):
        runs["c"]
    monkeypatch.setenv("FEDSCOPE_REGISTRY", str(registry))
    assert fedscope.Registry().folder == registry
    monkeypatch.delenv("FEDSCOPE_REGISTRY")
    assert registry_folder({}) == Path("checkpoints")


def test_a_run_can_be_deleted(tmp_path: Path) -> None:
    run = fedscope.train(rounds=1, clients=2, train_samples=60, test_samples=20, registry=tmp_path)
    runs = fedscope.Registry(tmp_path)
    runs.delete(run.name)
    assert len(runs) == 0
    assert repr(runs)


def test_a_damaged_run_is_left_out_with_a_warning(
    registry: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(registry, folder)
    (folder / "a" / "manifest.json").write_text("{")
    runs = fedscope.Registry(folder)
    assert len(runs) == 1
    assert not caplog.records
    assert [run.name for run in runs] == ["b"]
    assert "a is left out" in caplog.text
    assert "b" in repr(runs)


def test_the_best_round_is_chosen_on_validation(tmp_path: Path) -> None:
    run = fedscope.train(
        rounds=4, epochs=1, clients=2, train_samples=100, test_samples=50, validation=0.2, registry=tmp_path
    )
    accuracies = [one["accuracy"] for one in run.metrics]
    chosen = max(run.metrics, key=lambda one: one["validation"]["accuracy"])["accuracy"]
    assert chosen < max(accuracies)  # else the two could not be told apart
    assert run.table().rows[0][5] == f"{chosen:.2%}"


def test_runs_share_axes(registry: Path, tmp_path: Path) -> None:
    _, axes = pyplot.subplots()
    for run in fedscope.Registry(registry):
        assert run.plot(axes) is axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels == ["a", "b"]
    run = fedscope.Registry(registry)["a"]
    container = axes.containers[0]
    values = np.asarray(container[0].get_ydata())
    assert values == pytest.approx([100 * one["accuracy"] for one in run.metrics])
    assert run.accuracy == run.metrics[-1]["accuracy"] != run.metrics[0]["accuracy"]
    run.save(tmp_path / "a.svg")
    assert "accuracy" in (tmp_path / "a.svg").read_text()


def test_a_checkpoint_is_a_network_with_its_samples(registry: Path) -> None:
    found = fedscope.load("a@1", registry=registry, samples=16, split="test")
    assert isinstance(found.model, nn.Module)
    assert found.batches.samples == 16
    assert found.info["round"] == 1
    assert "mlp_digits" in repr(found)
    assert found.to_dict()["problem"]["split"] == "test"
    H = found.operator("ggn")
    v = torch.ones(H.shape[0])
    own = fedscope.GaussNewton(found.model, found.loss_fn, found.batches)
    assert torch.equal(H.matvec(v), own.matvec(v))
    with pytest.raises(UserError, match="name is 'hessain'; choose one of hessian"):
        found.operator("hessain")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="split is 'tset'"):
        fedscope.load("a@1", registry=registry, split="tset")  # type: ignore[arg-type]


def test_a_report_is_a_page(registry: Path, tmp_path: Path) -> None:
    found = fedscope.report("a", registry=registry, samples=32, grid=5, probes=4, clients=False)
    assert found.page.startswith("<!doctype html>")
    assert {one["schema"] for one in found.to_dict()} == {"fedscope/hessian/1", "fedscope/landscape/1"}
    assert "2 records" in repr(found)
    assert "&lt;!doctype html&gt;" in found._repr_html_()
    found.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == found.page
    with pytest.raises(UserError, match="runs and checkpoints"):
        fedscope.report(nn.Linear(2, 2), data=(torch.ones(2, 2), torch.ones(2)))


def test_checkpoints_of_several_registries_are_refused(registry: Path, tmp_path: Path) -> None:
    run = fedscope.train(rounds=1, clients=2, train_samples=60, test_samples=20, registry=tmp_path)
    with pytest.raises(UserError, match="several registries"):
        fedscope.compare(run, fedscope.Registry(registry)["a"])
