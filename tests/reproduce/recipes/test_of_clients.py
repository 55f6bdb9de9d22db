"""The quantities of clients and of sharpness, measured of a run and computed again from its files."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.saved_records import Kept
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.reproduce.artefacts.row_differences import Sample, difference
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.table_quantities import QUANTITIES, Number, from_record
from fedscope.reproduce.runs.measurements import cached_result, compute
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source

CLIENTS = Measure(
    "clients", samples=24, batch_size=8, tol=0.1, probes=2, only=("loss", "alignment", "drift", "barriers")
)
SHARPNESS = Measure("sharpness", samples=24, batch_size=8, only=("sam", "trace"))


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture(scope="module")
def folder(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run that is measured."""
    registry = tmp_path_factory.mktemp("measured")
    shutil.copytree(run.folder, registry / run.name)
    for wanted in (CLIENTS, SHARPNESS):
        compute(registry / run.name / "final.pt", wanted, registry, None, "cpu", lambda _: None)
    return registry / run.name


def result(folder: Path, wanted: Measure) -> Kept:
    found = cached_result(folder.parent, folder / "final.pt", wanted)
    assert found is not None
    return found


def value(folder: Path, name: str) -> float:
    wanted = CLIENTS if QUANTITIES[name].measure == "one_round" else SHARPNESS
    number = from_record(name, result(folder, wanted)).value
    assert number is not None
    return number


def test_a_gap_is_without_the_bias_of_few_samples_and_as_uncertain_as_its_interval(folder: Path) -> None:
    record = result(folder, CLIENTS)
    assert isinstance(record, ClientsRecord)
    flatness = record.to_json()["flatness"]
    loss = next(one for one in flatness if one["quantity"] == "loss")
    gap = next(one for one in loss["gaps"] if one["name"] == "discrepancy")
    gap["mean"] |= {"value": 5.0, "bias": 2.0, "stderr_data": 0.5, "dof": 4.0, "interval": [-1.0, 7.0]}
    found = from_record("gap_loss", record.edited(flatness=flatness))
    assert (found.value, found.dof) == (3.0, 4.0)
    assert found.error == pytest.approx(4 / 2.776445)  # of Student's t with 4 degrees of freedom


def test_drift_is_the_spread_of_the_uploads(folder: Path) -> None:
    record = result(folder, CLIENTS)
    assert isinstance(record, ClientsRecord)
    shares = np.array([one.share for one in record.clients])
    models = [load_checkpoint(path).state for path in sorted((folder / "clients").glob("*.pt"))]
    names = [name for name in models[0] if "running" not in name and "batches" not in name]  # no buffers
    uploads = np.array([np.concatenate([m[n].double().numpy().ravel() for n in names]) for m in models])
    mean = shares @ uploads
    wanted = shares @ ((uploads - mean) ** 2).sum(1)
    assert value(folder, "drift") == pytest.approx(wanted, rel=1e-4)  # w̄ is stored in float32
    assert from_record("drift", record).error == 0
    assert record.alignment
    from_start = {**record.alignment.to_json(), "anchor": "start"}  # lengths of updates are no spread
    assert from_record("drift", record.edited(alignment=from_start)) == Number(None, text="–")


def test_numbers_of_clients_are_those_of_the_record(folder: Path) -> None:
    record = result(folder, CLIENTS)
    assert isinstance(record, ClientsRecord)
    loss, averaging, barriers = record.of("loss"), record.averaging, record.barriers
    assert loss
    assert averaging
    assert barriers
    far, near = loss.cell("global", "global"), loss.cell("own", "own")
    assert far
    assert near
    assert value(folder, "gap_loss") == pytest.approx(far.mean.value - near.mean.value)
    assert value(folder, "averaging") == averaging.overall.mean.measured.value
    rest = value(folder, "averaging") - value(folder, "averaging_second")
    slope = averaging.overall.mean.first.value
    assert value(folder, "averaging_remainder") == pytest.approx(rest - slope, abs=1e-9)
    number = from_record("barrier", record)
    assert number.value == (barriers.mean.value if barriers.mean.resolved is not False else None)
    assert from_record("gap_trace", record) == Number(None, text="–")  # it was not asked for


def test_the_error_of_a_generalisation_gap_keeps_its_degrees_of_freedom(folder: Path) -> None:
    record = result(folder, SHARPNESS)
    assert isinstance(record, SharpnessRecord)
    assert record.gap
    drawn = record.edited(gap=record.gap.to_json() | {"stderr": 0.5, "dof": 7.0})
    found = from_record("generalisation_gap", drawn)
    assert (found.error, found.dof) == (0.5, 7.0)


def test_the_gap_is_between_the_splits(folder: Path) -> None:
    losses = {}
    for split in ("train", "test"):
        (problem,) = load([folder / "final.pt"], Source(batch_size=8, split=split))  # all samples
        with torch.no_grad():
            parts = [cross_entropy(problem.model(x), y, reduction="sum") for x, y in problem.batches]
        losses[split] = float(sum(parts)) / problem.batches.samples
    assert value(folder, "generalisation_gap") == pytest.approx(losses["test"] - losses["train"], rel=1e-5)
    record = result(folder, SHARPNESS)
    assert isinstance(record, SharpnessRecord)
    trace = record.quantity("trace")
    assert trace
    assert value(folder, "sharpness_trace") == trace.value


def test_sharpness_on_common_samples_is_paired(folder: Path) -> None:
    """A run beside itself differs by nothing, without an error; unpaired errors would add."""
    record = result(folder, SHARPNESS)
    one = Sample((from_record("sharpness_trace", record),), (record,), 2)
    found = difference("sharpness_trace", one, one)
    assert (found.value, found.stderr) == (0, 0)
    apart = difference("sharpness_trace", one, Sample(one.numbers, (None,), 2))
    assert apart.stderr > 0


def test_one_batch_tells_no_error(folder: Path) -> None:
    """The SAM step of 24 samples is one batch of its own perturbation."""
    assert from_record("sharpness_sam", result(folder, SHARPNESS)).error is None


def test_another_part_is_another_result(folder: Path) -> None:
    fewer = Measure("sharpness", samples=24, batch_size=8, only=("sam",))
    assert cached_result(folder.parent, folder / "final.pt", fewer) is None


def test_uploads_that_changed_are_measured_again(folder: Path, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    shutil.copytree(folder.parent, registry)
    first, second, *_ = sorted((registry / folder.name / "clients").glob("*.pt"))
    assert cached_result(registry, registry / folder.name / "final.pt", CLIENTS)
    shutil.copy(first, second)
    assert cached_result(registry, registry / folder.name / "final.pt", CLIENTS) is None
    for path in (first, second):
        path.unlink()  # what is left was measured
    assert cached_result(registry, registry / folder.name / "final.pt", CLIENTS)
