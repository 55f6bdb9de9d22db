"""Data as users hold it: tensors, loaders, data sets; read once, or again in every pass."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from fedscope import Batches, Hessian, MonteCarloFisher, random_directions, surface, top_eigenpairs, trace
from fedscope.errors import UserError
from fedscope.landscape.loss import streamed
from fedscope.landscape.loss.trees import count

INPUTS = torch.randn(70, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(70) % 4


@pytest.fixture
def reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every data set be too large to be kept."""
    monkeypatch.setattr(streamed, "HELD", 0)


class Counted(Dataset[tuple[Tensor, Tensor]]):
    """Rows that count how often they are read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        self.reads.append(row)
        return INPUTS[row], LABELS[row]


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def _equal(ours: Batches, theirs: Batches) -> None:
    assert ours.sizes == theirs.sizes
    for mine, yours in zip(ours, theirs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, yours, strict=True))
    assert ours.sha256 == theirs.sha256


class Flow(IterableDataset[tuple[Tensor, Tensor]]):
    """The samples one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(INPUTS, LABELS, strict=True))


PLAIN = Batches(INPUTS, LABELS, 16)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.usefixtures("reads_again")
def test_a_loader_is_read_in_the_order_of_its_rows(shuffle: bool) -> None:
    batches = Batches.of(DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16, shuffle=shuffle))
    assert batches.is_streamed
    _equal(batches, PLAIN)
    _equal(batches.to("cpu", torch.float64), PLAIN.to("cpu", torch.float64))
    _equal(batches.dealt(6), PLAIN.dealt(6))
    _equal(batches.dealt(6).dealt(8, seed=1), PLAIN.dealt(6).dealt(8, seed=1))
    assert torch.equal(batches.dealt(6).order, PLAIN.dealt(6).order)
    assert [count(inputs) for inputs, _ in batches.joined(40)] == [32, 38]


@pytest.mark.usefixtures("reads_again")
def test_curvature_has_the_same_bits_streamed() -> None:
    found = []
    for data in (PLAIN, DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16, shuffle=True)):
        H = Hessian(_model(), cross_entropy, data, deal=8)
        top = top_eigenpairs(H, k=2, tol=1e-6)
        found.append((top.values, top.stderr_data, torch.tensor(trace(H, probes=4).samples), H.fingerprint))
    assert all(torch.equal(*pair) for pair in zip(found[0][:3], found[1][:3], strict=True))
    assert found[0][3] == found[1][3]


@pytest.mark.usefixtures("reads_again")
def test_other_targets_go_with_their_samples_and_leave_the_inputs_where_they_are() -> None:
    given = Batches.of(TensorDataset(INPUTS, LABELS), 16).dealt(6)
    targets = [{"of": labels + 10} for _, labels in given]
    found = given.with_targets(targets)
    assert found.is_streamed
    for batches in (found, found.dealt(7, seed=1)):
        assert all(torch.equal(y["of"], LABELS[_places(x)] + 10) for x, y in batches)
    H = [MonteCarloFisher(_model(), cross_entropy, data, seed=2) for data in (PLAIN, _loader())]
    v = torch.ones(H[0].shape[0])
    assert torch.equal(H[0].product(v).vector, H[1].product(v).vector)
    assert H[1].loss.batches.is_streamed


def _places(inputs: Tensor) -> Tensor:
    return (inputs[:, None] == INPUTS).all(2).int().argmax(1)


def _loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16)


@pytest.mark.usefixtures("reads_again")
def test_one_product_reads_each_row_once_and_keeps_no_graph() -> None:
    data = Counted()
    H = Hessian(_model(), cross_entropy, DataLoader(data, batch_size=16))
    v = torch.ones(H.shape[0])
    first = H.matvec(v)
    data.reads.clear()
    assert torch.equal(H.matvec(v), first)
    assert sorted(data.reads) == list(range(70))
    assert H.plan.kept == 0


def test_what_is_small_is_read_once_and_kept() -> None:
    data = Counted()
    batches = Batches.of(data, 16)
    assert not batches.is_streamed
    data.reads.clear()
    _equal(batches, PLAIN)
    assert not data.reads


@pytest.mark.usefixtures("reads_again")
def test_rows_that_are_augmented_at_random_are_read_once() -> None:
    class Noisy(Counted):
        def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
            inputs, label = super().__getitem__(row)
            return inputs + torch.randn(3), label

    batches = Batches.of(DataLoader(Noisy(), batch_size=16))
    assert not batches.is_streamed
    assert torch.equal(batches[0][0], batches[0][0])


@pytest.mark.usefixtures("reads_again")
def test_a_sampler_of_some_rows_is_drawn_from_once() -> None:
    rows = [5, 3, 40, 41, 42]
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=2, sampler=SubsetRandomSampler(rows))
    batches = Batches.of(loader)
    found = torch.cat([inputs for inputs, _ in batches])
    assert torch.equal(found, INPUTS[sorted(rows)])
    assert torch.equal(found, torch.cat([inputs for inputs, _ in batches]))
    dropping = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16, shuffle=True, drop_last=True)
    assert Batches.of(dropping).sizes == (16, 16, 16, 16, 6)
    assert Batches.of(dropping).notes == (
        "the loader would leave out 6 of 70 rows (drop_last); all 70 are read",
    )
    own = DataLoader(
        TensorDataset(INPUTS, LABELS), batch_sampler=BatchSampler(range(3, 9), 4, drop_last=False)
    )
    assert torch.equal(Batches.of(own)[1][0], INPUTS[7:9])


def test_an_iterable_is_run_through_once() -> None:
    _equal(Batches.of(DataLoader(Flow(), batch_size=16)), PLAIN)
    _equal(Batches.of(iter(PLAIN)), PLAIN)
    _equal(Batches.of(DataLoader(list(PLAIN), batch_size=None)), PLAIN)  # type: ignore[arg-type]


def test_a_pair_is_tensors_or_arrays() -> None:
    _equal(Batches.of((INPUTS, LABELS), 16), PLAIN)
    _equal(Batches.of((INPUTS.numpy(), LABELS.numpy()), 16), PLAIN)
    two = Batches.of((INPUTS, {"of": LABELS.numpy(), "by": (np.ones(70),)}), 16)
    assert two[0][1]["by"][0].dtype == torch.float64
    _equal(Batches.of(tuple(PLAIN)[:2]), Batches(INPUTS[:32], LABELS[:32], 16))


@pytest.mark.parametrize("again", [False, True])
def test_a_data_set_of_hugging_face_is_read_by_its_columns(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(streamed, "HELD", 0 if again else 1 << 20)
    columns: dict[str, Any] = {"x": INPUTS.tolist(), "label": LABELS.tolist()}
    found = Batches.of(datasets.Dataset.from_dict(columns), 16)
    assert found.is_streamed == again
    _equal(found, PLAIN)
    more = Batches.of(datasets.Dataset.from_dict({**columns, "mask": [1.0] * 70}), 16)
    assert set(more[0][0]) == {"x", "label", "mask"}
    chosen = datasets.Dataset.from_dict(columns)
    chosen.set_transform(lambda rows: {"x": 2 * torch.tensor(rows["x"]), "label": rows["label"]})
    assert torch.equal(Batches.of(chosen, 16)[0][0], 2 * INPUTS[:16])


def test_a_data_set_without_rows_is_refused() -> None:
    with pytest.raises(UserError, match="no batches"):
        Batches.of(DataLoader(TensorDataset(INPUTS[:0], LABELS[:0]), batch_size=4))
    with pytest.raises(UserError, match="pair"):
        Batches.of(TensorDataset(INPUTS), 4)


@pytest.mark.usefixtures("reads_again")
def test_a_surface_has_the_same_bits_and_keeps_no_inputs() -> None:
    data = Counted()
    directions = random_directions(_model(), torch.Generator().manual_seed(0))
    found = surface(_model(), cross_entropy, DataLoader(data, batch_size=16), directions=directions, grid=3)
    assert torch.equal(
        found.loss, surface(_model(), cross_entropy, PLAIN, directions=directions, grid=3).loss
    )
    assert data.reads.count(0) >= 9  # a pass for each point


class Flipped(Counted):
    """Rows of which each is turned round now and then."""

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        sign = 1 if torch.rand(()) > 0.1 else -1
        return sign * INPUTS[row], LABELS[row]


@pytest.mark.usefixtures("reads_again")
def test_rows_that_change_now_and_then_are_kept() -> None:
    torch.manual_seed(0)
    for _ in range(20):
        batches = Batches.of(DataLoader(Flipped(), batch_size=10))
        first, again = (torch.cat([x for x, _ in batches]) for _ in range(2))
        assert torch.equal(first, again)
