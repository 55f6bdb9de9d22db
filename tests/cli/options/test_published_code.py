import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.landscape import Hessian, top_eigenpairs
from fedscope.landscape.published.estimators import Resampled, published_comparison, published_trace
from fedscope.landscape.spectral.subspace_overlap import subspace_overlap
from fedscope.streams import torch_stream
from fedscope.workflows.curvature import compared_clients
from fedscope.workflows.curvature.resources import BATCHES
from fedscope.workflows.requests import Resampling
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants, loader
from fedscope.workflows.sources.samples import Source
from tests.cli.conftest import Command

pytestmark = pytest.mark.slow

FAST = ("--samples", "48", "--threads", "1", "--probes", "2")
SMALL = ("--threads", "1", "--batch-size", "4", "--product-batches", "1")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_reading_code_is_what_the_scripts_compute(fedscope: Command, run: RunFolder) -> None:
    small = ("--model", "mlp_digits", "--clients", "3", "--rounds", "1", "--epochs", "1", "--threads", "1")
    assert fedscope("train", *small, "--name", "small").code == 0
    run = RunFolder(run.folder.parent / "small")
    done = fedscope("hessian", "small", "--reading", "code", *SMALL, "--clients", "--json", "code.json")
    assert done.code == 0, done.err
    assert "reading code" in done.out
    record: dict[str, Any] = json.loads(Path("code.json").read_text())
    marks = {"reading": "code", "batch_size": 4, "product_batches": 1, "samples": 1437, "resample": True}
    assert {name: record["problem"][name] for name in marks} == marks
    assert record["checkpoint"]["path"] == str(run.best)
    assert (record["converged"], record["trace"]["converged"], record["non_finite"]) == (None, None, 0)
    assert record["lambda_max"]["residual"] is record["trace"]["stderr_probe"] is None

    (problem,) = load([run.best], Source(samples=8))
    recipe, traces = Resampling(batches=1, batch_size=4), []
    for client in Participants(problem, "client", "global", latest=True):
        operator = Resampled(partial(Hessian, client.model, problem.loss_fn), loader(problem, recipe))
        traces.append(published_trace(operator, generator=torch.Generator().manual_seed(1)))
    expected = published_comparison(traces)
    cross = record["cross_client"]
    assert (cross["pairs"], cross["weights"], cross["data"]) == ("all_including_self", "client", "global")
    assert cross["probes"] == list(expected.probes)
    for name, values in (("H_N", expected.H_N), ("H_D", expected.H_D)):
        assert cross[name]["tensor"]["value"] == pytest.approx(values["tensor"].value, rel=1e-4)
        assert cross[name]["tensor"]["stderr"] is cross[name]["tensor"]["interval"] is None
        assert cross[name]["parameter"] is None


def test_what_the_user_sets_is_not_the_readings_to_set(fedscope: Command, run: RunFolder) -> None:
    chosen = ("--no-augment", "--no-resample", "--seed", "5", "--samples", "24")
    done = fedscope("hessian", "tiny@final", "--reading", "code", *SMALL, *chosen, "--json", "-")
    assert done.code == 0, done.err
    problem = done.json["problem"]
    assert done.json["checkpoint"]["path"] == str(run.final)
    assert (problem["samples"], problem["seed"], problem["resample"]) == (24, 5, False)
    assert problem["augmentation"] == "none"


def test_the_papers_reading_takes_own_rows_unless_told_otherwise(fedscope: Command) -> None:
    few = (*FAST, "--clients", "--client-probes", "6", "--json", "-")
    own, common, shared = (
        fedscope("hessian", "tiny", *few, *more).json["cross_client"]
        for more in ((), ("--client-data", "global"), ("--client-weights", "global"))
    )
    assert (own["weights"], own["data"], own["pairs"]) == ("client", "own", "distinct")
    assert common["data"] == "global"
    assert shared["weights"] == "global"
    assert len({entry["H_D"]["tensor"]["value"] for entry in (own, common, shared)}) == 3
    assert own["rounds"] == [2, 2, 2]


def test_probes_until_the_intervals_are_narrow(fedscope: Command) -> None:
    options = ("--clients", "--client-rtol", "1e-3", "--client-max-probes", "32", "--json", "r.json")
    done = fedscope("hessian", "tiny", *FAST, *options)
    cross = json.loads(Path("r.json").read_text())["cross_client"]
    assert (cross["converged"], cross["probes"], cross["aim"]) == (False, 32, "parameter")
    assert "did not reach --client-rtol in 32 probes" in done.err
    low, high = cross["H_N"]["tensor"]["interval"]
    assert 0 <= low <= cross["H_N"]["tensor"]["value"] <= high


def test_overlap_of_the_clients_eigenspaces(fedscope: Command, run: RunFolder) -> None:
    few = (*FAST, "--clients", "--client-probes", "3", "--overlap", "2", "--json", "-")
    record = fedscope("hessian", "tiny", *few).json
    assert len(record["eigenvalues"]) == 1
    cross = record["cross_client"]
    assert (cross["overlap_k"], cross["overlap_converged"]) == (2, True)
    (problem,) = load([run.final], Source(samples=48))
    whole = Hessian(problem.model, problem.loss_fn, problem.batches)
    ours = top_eigenpairs(whole, k=2, generator=torch_stream(0, "lanczos")).vectors
    measured = zip(cross["overlap"], cross["lambda_max"], strict=True)
    for client, (value, top) in zip(Participants(problem, "client", "own"), measured, strict=True):
        operator = Hessian(client.model, problem.loss_fn, client.batches, deal=BATCHES)
        theirs = top_eigenpairs(operator, k=2, generator=torch_stream(0, "lanczos"))
        assert value == pytest.approx(subspace_overlap(theirs.vectors, ours), abs=1e-3)
        assert 0 < value < 1
        assert top["stderr_data"] == pytest.approx(float(theirs.stderr_data[0]), rel=1e-2)
        assert (top["effective_samples"] is None, top["by_sample"]) == (False, None)


def test_one_client_s_eigenvectors_that_did_not_converge_are_told(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter((False, True, True))
    monkeypatch.setattr(
        compared_clients, "top_eigenpairs",
        lambda *args, **named: replace(top_eigenpairs(*args, **named), converged=next(found)),
    )  # fmt: skip
    options = ("--clients", "--client-probes", "3", "--overlap", "2", "--recompute", "--json", "-")
    assert fedscope("hessian", "tiny", *FAST, *options).json["cross_client"]["overlap_converged"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--augment",), "add --reading code"),
        (("--product-batches", "3"), "add --reading code"),
        (("--reading", "code", "--product-batches", "many"), "a number from 1 up, or all"),
        (("--reading", "code", "--density"), "use --reading paper"),
        (("--reading", "code", "--engine", "pyhessian"), "drop --engine pyhessian"),
        (("--reading", "code", "--clients", "--overlap", "2"), "have no density, no overlap"),
        (("--reading", "code", "--batch-size", "2000"), "lower --batch-size"),
        (("--clients", "--client-weights", "global", "--client-data", "global"), "add --client-data own"),
        (("--clients", "--split", "test"), "use --client-data global"),
        (("--overlap", "2"), "add --clients"),
    ],
)
def test_what_does_not_go_together_is_refused(
    fedscope: Command, options: tuple[str, ...], message: str
) -> None:
    done = fedscope("hessian", "tiny", "--samples", "16", "--threads", "1", *options)
    assert (done.code, message in done.err) == (2, True), done.err
