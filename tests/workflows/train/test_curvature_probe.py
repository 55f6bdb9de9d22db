"""λ_max and trace by round: against the dense Hessian, continued runs, and networks that are refused."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.round_diagnostics import CurvatureProbe
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.cli.main import call
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, open_run, prepare
from fedscope.streams import torch_stream
from fedscope.workflows.train.curvature_probe import PROBES, CurvatureProber

SETTINGS = Settings(
    model="mlp_digits", clients=3, rounds=4, epochs=1, threads=1, train_samples=200, test_samples=50,
    keep_every=1, probe_curvature=2, probe_samples=64,
)  # fmt: skip


def probed(root: Path, settings: Settings, name: str = "run", until: int | None = None) -> RunFolder:
    federation = prepare(settings, {})
    there = RunRegistry(root).has(name)
    run = open_run(federation, RunRegistry(root), name, resume=there)
    train(federation, run, lambda _: None, until=until, probe=CurvatureProber(federation, name))
    return run


def curvatures(run: RunFolder) -> list[CurvatureProbe | None]:
    return [record.diagnostics.curvature if record.diagnostics else None for record in run.metrics()]


def dense(run: RunFolder, federation: Federation, round: int, rows: torch.Tensor) -> torch.Tensor:
    """Return the Hessian of the mean loss on ``rows``, in float64."""
    model: nn.Module = federation.model.double().eval()
    model.load_state_dict(load_checkpoint(run.after_round(round)).state)
    split = federation.dataset.train
    inputs = federation.pipeline.test(split.images, rows).double()
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(w: torch.Tensor) -> torch.Tensor:
        parts = zip(named.items(), w.split(sizes), strict=True)
        tensors = {name: piece.view(p.shape) for (name, p), piece in parts}
        return cross_entropy(functional_call(model, tensors, (inputs,)), split.labels[rows])

    w = torch.cat([p.detach().flatten() for p in named.values()])
    return torch.as_tensor(hessian(loss, w, vectorize=True))


def test_the_dense_hessian_has_these_values(tmp_path: Path) -> None:
    run, federation = probed(tmp_path, SETTINGS), prepare(SETTINGS, {})
    prober = CurvatureProber(federation, "run")
    (inputs, labels), *_ = list(prober._batches(2))
    first, second, third, last = curvatures(run)
    assert (first, third) == (None, None)
    split = federation.dataset.train
    images = federation.pipeline.test(split.images, torch.arange(len(split)))
    rows = torch.stack([(images == one).flatten(1).all(1).nonzero()[0, 0] for one in inputs])
    assert torch.equal(split.labels[rows], labels)
    for found, round in ((second, 2), (last, 4)):
        assert found
        assert found.samples == 64
        H = dense(run, federation, round, rows)
        largest = float(torch.linalg.eigvalsh(H)[-1])
        assert found.lambda_max == pytest.approx(largest, rel=1e-5)
        assert abs((found.lambda_max or 0) - largest) <= (found.residual or 0) + 1e-5 * largest
        generator = torch_stream(0, "trace")
        z = 2.0 * torch.stack([torch.randint(2, (len(H),), generator=generator) for _ in range(PROBES)]) - 1
        estimates = ((z.double() @ H) * z).sum(1)
        assert found.trace == pytest.approx(float(estimates.mean()), rel=1e-5)
        assert abs((found.trace or 0) - float(H.trace())) < 4 * (found.trace_stderr or 0)


def test_the_samples_are_those_of_the_command(tmp_path: Path) -> None:
    run = probed(tmp_path, SETTINGS)
    words = ["hessian", "run@4", "--samples", "64", "--probes", "2", "--registry", str(tmp_path)]
    assert call([*words, "--json", str(tmp_path / "found.json")]) == 0
    measured = json.loads((tmp_path / "found.json").read_text())
    found = curvatures(run)[3]
    assert found
    assert found.lambda_max == pytest.approx(measured["lambda_max"]["value"], rel=1e-5)
    assert measured["problem"]["samples"] == found.samples


def test_a_probe_changes_nothing_else_and_the_next_one_starts_where_it_ended(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"rounds": 3, "probe_curvature": 1})
    run = probed(tmp_path, settings, "probed")
    plain = probed(tmp_path, settings.model_copy(update={"probe_curvature": 0}), "plain")
    assert load_checkpoint(run.final).sha256 == load_checkpoint(plain.final).sha256
    assert curvatures(plain) == [None] * 3
    first, second, third = (found.products for found in curvatures(run) if found)
    assert max(second, third) < first
    assert all("probe" in record.seconds_in for record in run.metrics())
    assert not list(verify_run(run))


def test_an_eigenvector_that_is_known_is_not_looked_for_again() -> None:
    federation = prepare(SETTINGS, {})
    prober, state = CurvatureProber(federation, "run"), federation.model.state_dict()
    first, again = prober(2, state), prober(4, state)
    assert again.lambda_max == pytest.approx(first.lambda_max, rel=1e-5)
    assert again.products < first.products


def test_a_continued_run_differs_by_its_residual_in_one_number_alone(tmp_path: Path) -> None:
    whole = probed(tmp_path, SETTINGS, "whole")
    probed(tmp_path, SETTINGS, "cut", until=3)
    run = probed(tmp_path, SETTINGS, "cut")
    before, after = curvatures(whole)[3], curvatures(run)[3]
    assert before
    assert after
    assert (before.trace, before.trace_stderr) == (after.trace, after.trace_stderr)
    bound = (before.residual or 0) + (after.residual or 0) + 1e-5 * (before.lambda_max or 0)
    assert abs((before.lambda_max or 0) - (after.lambda_max or 0)) <= bound
    assert curvatures(whole)[1] == curvatures(run)[1]
    assert load_checkpoint(run.final).sha256 == load_checkpoint(whole.final).sha256


def test_rows_held_out_and_small_data(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"validation": 0.25, "probe_samples": 1000, "rounds": 2})
    federation = prepare(settings, {})
    found = curvatures(probed(tmp_path, settings))[1]
    assert found
    assert found.samples == 200 - len(federation.held_out) == sum(map(len, federation.rows))


def test_a_model_that_is_not_finite_is_null(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"lr": 1e30, "probe_curvature": 1})
    (found,) = curvatures(probed(tmp_path, settings))
    assert found
    assert (found.lambda_max, found.trace) == (None, None)


def test_the_command_measures_when_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train", "--model", "mlp_digits", "--clients", "2", "--rounds", "2", "--epochs", "1",
        "--train-samples", "100", "--registry", str(tmp_path), "--threads", "1", "--name", "x",
    ]  # fmt: skip
    assert call([*words, "--probe-samples", "50"]) == 2
    assert "--probe-samples has no effect without --probe-curvature" in capsys.readouterr().err
    assert call([*words, "--probe-curvature", "3"]) == 2
    assert "beyond the 2 rounds" in capsys.readouterr().err
    assert call([*words, "--probe-curvature", "2", "--probe-samples", "50"]) == 0
    run = RunFolder(tmp_path / "x")
    assert [found is not None for found in curvatures(run)] == [False, True]
    assert run.manifest().settings.probe_samples == 50
    assert "λ_max" in _shown(tmp_path, capsys)
    assert call([*words, "--resume", "--probe-curvature", "1"]) == 2
    assert "probe_curvature 2 → 1" in capsys.readouterr().err


def _shown(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert call(["runs", "show", "x", "--registry", str(root)]) == 0
    return capsys.readouterr().out


def test_settings_of_older_runs_are_written_as_before() -> None:
    assert not {"probe_curvature", "probe_samples"} & Settings().model_dump().keys()
