"""Which samples make λ_max: each row's part by another derivative on the data set's own row."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.client_rows import read_rows, rows_spec
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.choices import OperatorName
from fedscope.data.sets.dataset_catalogue import load as load_data
from fedscope.data.sets.dataset_catalogue import pipeline
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.influence_entry import Influence
from fedscope.workflows.curvature import measure_curvature as measuring
from fedscope.workflows.curvature.influential_samples import _scaled as scaled
from fedscope.workflows.curvature.influential_samples import images_of
from fedscope.workflows.curvature.measure_curvature import measure
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.study import Session

pytestmark = pytest.mark.slow

SAMPLES = 60
ASKED = Request(influence=5, probes=2)


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def measured(problem: Problem, **changes: object) -> HessianRecord:
    return measure(problem, replace(ASKED, **changes))  # type: ignore[arg-type]


def of(record: HessianRecord) -> Influence:
    assert record.influence
    return record.influence


def problem_of(run: RunFolder, **changes: object) -> Problem:
    settings = {"samples": SAMPLES, "dtype": torch.float64, **changes}
    return load([run.final], Source(**settings))[0]  # type: ignore[arg-type]


class Small(nn.Module):
    """Logits of a linear layer, whose sample Hessians are known in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.linear(inputs)
        return found


def own_problem(samples: int = 40, loss: nn.Module | None = None) -> Problem:
    torch.manual_seed(1)
    inputs, targets = torch.randn(samples, 4).double(), torch.randint(3, (samples,))
    inputs[7] *= 6
    batches, model = Batches(inputs, targets, 10), Small().double()
    rows = torch.arange(samples) + 100
    source = Source(data="mine:data", dtype=torch.float64)
    return Problem(model, loss or cross_entropy, batches, source, Path("a.pt"), "0" * 64, None, (), rows)


def hessians(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return each sample's dense Hessian (N, 12, 12) and the largest eigenvector (12,) of their mean."""
    inputs, _ = (torch.cat(part) for part in zip(*problem.batches, strict=True))
    p = problem.model(inputs).softmax(1).detach()
    outer = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]  # of the logits; weights are (3, 4)
    dense = torch.einsum("nab,ni,nj->naibj", outer, inputs, inputs).reshape(len(p), 12, 12)
    return dense, torch.linalg.eigh(dense.mean(0)).eigenvectors[:, -1]


@pytest.mark.parametrize("operator", ["hessian", "ggn", "fisher"])
def test_parts_and_rows_are_those_of_dense_hessians(operator: OperatorName) -> None:
    problem = own_problem()
    found = measured(problem, operator=operator, tol=1e-8, influence=40)
    dense, v = hessians(problem)
    inputs, targets = (torch.cat(part) for part in zip(*problem.batches, strict=True))
    if operator == "fisher":
        error = problem.model(inputs).softmax(1).detach() - nn.functional.one_hot(targets, 3)
        gradients = torch.einsum("na,ni->nai", error, inputs).reshape(40, 12)
        dense = gradients[:, :, None] * gradients[:, None, :]
        v = torch.linalg.eigh(dense.mean(0)).eigenvectors[:, -1]
    parts = torch.einsum("nij,i,j->n", dense, v, v)
    order = parts.argsort(descending=True)
    influence = of(found)
    assert [one.row for one in influence.largest] == (order + 100).tolist()
    assert [one.label for one in influence.largest] == targets[order].tolist()
    assert [one.part for one in influence.largest] == pytest.approx(parts[order].tolist(), abs=1e-6)
    assert influence.top.share == pytest.approx(float(parts.max() / parts.sum()), rel=1e-6)
    for group in influence.by_class or ():
        own = parts[targets == group.number]
        assert group.samples == len(own)
        assert group.mean == pytest.approx(float(own.mean()), rel=1e-5)
        assert group.share == pytest.approx(float(own.sum() / parts.sum()), rel=1e-5)
    assert (influence.by_client, influence.split) == (None, None)
    assert "plain state_dict" in (influence.clients_reason or "")


def test_a_registered_runs_rows_are_those_of_the_data_set(run: RunFolder) -> None:
    problem = problem_of(run)
    found = measured(problem, influence=SAMPLES)
    influence, split = of(found), load_data("digits").train
    assert sorted(one.row for one in influence.largest) == problem.rows.tolist()  # type: ignore[union-attr]
    spec = rows_spec(run)
    assert spec
    clients = read_rows(run.rows(None), spec).clients
    for one in influence.largest:
        assert one.label == int(split.labels[one.row])
        assert one.clients == tuple(k for k, rows in enumerate(clients) if one.row in rows)
    assert sum(group.samples for group in influence.by_client or ()) == SAMPLES
    assert (influence.rows, influence.rows_sha256) == ("stored", spec.sha256)
    images = images_of(problem, found)
    assert images is not None
    assert isinstance(split.images, Tensor)
    rows = [one.row for one in influence.largest]
    torch.testing.assert_close(torch.tensor(images[..., 0]), split.images[rows, 0] / 255)


def test_a_whole_split_leaves_the_shares_without_error(run: RunFolder) -> None:
    some, whole = (of(measured(problem_of(run, samples=count))) for count in (SAMPLES, None))
    assert all(group.stderr > 0 for group in (*(some.by_class or ()), *(some.by_client or ())))
    assert {group.stderr for group in (*(whole.by_class or ()), *(whole.by_client or ()))} == {0}


def test_the_parts_of_rows_are_their_own_curvature(run: RunFolder) -> None:
    """vᵀ∇²ℓv of each listed row's loss by PyTorch's own double backward, on the data set's own row."""
    problem = problem_of(run)
    found = measured(problem, tol=1e-6)
    model, split = problem.model, load_data("digits").train
    parameters = list(model.parameters())
    v = _eigenvector(problem, found.lambda_max.value)
    inputs = pipeline("digits")[1].test(split.images).double()
    for one in of(found).largest:
        loss = cross_entropy(model(inputs[one.row][None]), split.labels[one.row][None])
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        product = torch.autograd.grad(gradients, parameters, v)
        along = sum(float((part * own).sum()) for part, own in zip(product, v, strict=True))
        assert along == pytest.approx(one.part, rel=1e-2)


def _eigenvector(problem: Problem, value: float) -> list[Tensor]:
    """Return the eigenvector of λ_max by power iteration with PyTorch's own double backward."""
    inputs, targets = (torch.cat(part) for part in zip(*problem.batches, strict=True))
    parameters = list(problem.model.parameters())
    gradients = torch.autograd.grad(
        cross_entropy(problem.model(inputs), targets), parameters, create_graph=True
    )
    draws = torch.Generator().manual_seed(0)
    v = [torch.randn(p.shape, generator=draws, dtype=p.dtype) for p in parameters]
    for _ in range(400):
        norm = torch.sqrt(sum((part**2).sum() for part in v))  # type: ignore[arg-type]
        v = [part / norm for part in v]
        product = torch.autograd.grad(gradients, parameters, v, retain_graph=True)
        v = [part + 0.2 * value * own for part, own in zip(product, v, strict=True)]
    norm = torch.sqrt(sum((part**2).sum() for part in v))  # type: ignore[arg-type]
    assert float(norm) == pytest.approx(1.2 * value, rel=1e-4)
    return [part / norm for part in v]


def test_a_kept_result_is_told_without_products(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(run)
    first = measure(problem, replace(ASKED, influence=None), Session(keep=tmp_path))
    assert first.influence is None
    monkeypatch.setattr(measuring, "_measured", None)  # what would make products
    again = measure(problem, ASKED, Session(keep=tmp_path))
    assert (again.reused, len(of(again).largest)) == (True, 5)
    assert of(again) == of(measure(problem, replace(ASKED, top_k=1), Session(keep=tmp_path)))


def test_of_the_test_split_no_client_is_told(run: RunFolder) -> None:
    influence = of(measured(problem_of(run, split="test")))
    assert (influence.by_client, influence.split) == (None, "test")
    assert influence.clients_reason == "no client holds samples of the test split"


def test_clients_are_those_of_the_checkpoint_not_of_its_weights(run: RunFolder, tmp_path: Path) -> None:
    """Runs that begin at the same weights share results, and have other clients."""
    problem = problem_of(run)
    first = of(measure(problem, ASKED, Session(keep=tmp_path)))
    info = load_checkpoint(run.final).info
    added = info.model_copy(update={"settings": info.settings.model_copy(update={"partition": "unknown"})})
    other = measure(replace(problem, info=added), ASKED, Session(keep=tmp_path))
    assert other.reused
    assert of(other).by_client is None
    assert of(other).by_class == first.by_class


def test_where_no_sample_has_a_part_it_is_refused_before_any_product(
    residual: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_measured", None)
    with pytest.raises(UserError, match=r"BatchNorm by the batch's own.*--bn eval"):
        measured(problem_of(residual), bn="batch")
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 2.0]).double())
    with pytest.raises(UserError, match="no plain mean over samples"):
        measured(own_problem(loss=weighted))
    for published in ({"reading": "code"}, {"engine": "pyhessian", "probes": None}):
        with pytest.raises(UserError, match=r"--influence.* fedscope's own estimators"):
            measured(problem_of(residual), **published)


def test_a_kept_result_of_other_batches_names_the_same_rows(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was measured on a GPU, which deals the samples to fewer batches."""
    problem = problem_of(run, samples=160)
    monkeypatch.setattr(measuring, "BATCHES", 8)
    first = measure(problem, ASKED, Session(keep=tmp_path))
    monkeypatch.undo()
    again = measure(problem, ASKED, Session(keep=tmp_path))
    assert (again.reused, len(again.batch_sizes)) == (True, 8)
    assert [one.row for one in of(again).largest] == [one.row for one in of(first).largest]
    assert of(again).by_class == of(first).by_class


def test_a_result_of_other_batches_is_not_completed(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(run, samples=160)
    monkeypatch.setattr(measuring, "BATCHES", 8)
    measure(problem, ASKED, Session(keep=tmp_path))
    monkeypatch.undo()
    more = measure(problem, replace(ASKED, layers=True), Session(keep=tmp_path))
    fresh = measure(problem, replace(ASKED, layers=True))
    assert (len(more.batch_sizes), len(more.lambda_max.batches or ())) == (16, 16)
    assert [one.row for one in of(more).largest] == [one.row for one in of(fresh).largest]


def test_pictures_of_floats_are_stretched_to_their_own_range() -> None:
    images = torch.tensor([[[[-1.0, 0.0], [1.0, 3.0]]], [[[5.0, 5.0], [5.0, 5.0]]]])
    shown = torch.as_tensor(scaled(images))
    assert shown[0, ..., 0].tolist() == [[0.0, 0.25], [0.5, 1.0]]
    assert shown[1].abs().max() == 0  # of one grey alone
