"""How far updates part: closed forms, numpy, and updates that differ in their last digits alone."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.round_diagnostics import Updates
from fedscope.federated.server import updates as module
from fedscope.federated.server import weighted_scatter
from fedscope.federated.server.updates import ClientUpdates, cosines
from fedscope.federated.server.weighted_scatter import WeightedScatter

NOWHERE = torch.zeros(0, dtype=torch.int64)


def recorded(
    rows: list[list[float]],
    weights: list[float] | None = None,
    *,
    stack: int = 1,
    shared: Tensor | None = None,
) -> Updates:
    """Return the record of updates from a start of zeros, added in stacks."""
    values = torch.tensor(rows)
    count, size = values.shape
    start = torch.zeros(size if shared is None else int(shared.sum()))
    found = ClientUpdates(range(count), weights or [1 / count] * count, start, shared, NOWHERE)
    for clients in torch.arange(count).split(stack):
        found.add(clients.tolist(), values[clients])
    return found.record()


def test_orthogonal_updates_of_one_length() -> None:
    found = recorded([[3.0, 0.0], [0.0, 3.0]])
    assert found.norms == [3.0, 3.0]
    assert found.mean_norm == pytest.approx(3 / np.sqrt(2), rel=1e-12)
    assert (found.drift, found.diversity) == (4.5, 1.0)
    assert found.pairs
    assert found.to_mean
    assert (found.pairs.mean, found.pairs.least, found.pairs.most) == (0, 0, 0)
    assert found.to_mean.mean == pytest.approx(1 / np.sqrt(2), rel=1e-12)
    assert found.batchnorm is None


def test_equal_updates_have_the_least_diversity() -> None:
    found = recorded([[1.0, 2.0]] * 4)
    assert found.drift == 0
    assert found.diversity == pytest.approx(0.25, rel=1e-12)
    assert found.pairs
    assert found.pairs.least == pytest.approx(1, rel=1e-12)


def test_updates_that_cancel_have_no_diversity_and_no_cosine_to_their_mean() -> None:
    found = recorded([[1.0, 0.0], [-1.0, 0.0]])
    assert (found.mean_norm, found.drift, found.diversity) == (0, 1, None)
    assert found.pairs
    assert found.to_mean
    assert (found.pairs.mean, found.to_mean.mean) == (-1, None)


def test_one_client_has_no_pair() -> None:
    found = recorded([[3.0, 4.0]])
    assert (found.norms, found.drift, found.diversity, found.pairs) == ([5.0], 0, 1, None)
    assert found.to_mean
    assert found.to_mean.mean == pytest.approx(1)


def test_an_update_of_zero_has_no_cosine() -> None:
    found = recorded([[3.0, 4.0], [0.0, 0.0]])
    assert (found.norms, found.drift, found.diversity) == ([5.0, 0.0], 6.25, 1)
    assert found.pairs
    assert found.to_mean
    assert (found.pairs.mean, found.pairs.least, found.to_mean.most) == (None, None, None)


def test_an_update_that_is_not_finite_is_null() -> None:
    found = recorded([[1.0, 0.0], [np.inf, 0.0]])
    assert found.norms == [1.0, None]
    assert (found.mean_norm, found.drift, found.diversity) == (None, None, None)


@pytest.mark.parametrize("stack", [1, 2, 7])
def test_numpy_finds_the_same(stack: int) -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((7, 50)).astype(np.float32)
    weights = generator.random(7)
    weights /= weights.sum()
    found = recorded(rows.tolist(), weights.tolist(), stack=stack)
    wide = rows.astype(np.float64)
    mean = weights @ wide
    norms = np.linalg.norm(wide, axis=1)
    unit = wide / norms[:, None]
    pairs = (unit @ unit.T)[np.triu_indices(7, 1)]
    to_mean = unit @ mean / np.linalg.norm(mean)
    assert found.norms == pytest.approx(norms, rel=1e-6)
    assert found.mean_norm == pytest.approx(np.linalg.norm(mean), rel=1e-6)
    assert found.drift == pytest.approx(weights @ ((wide - mean) ** 2).sum(1), rel=1e-6)
    assert found.diversity == pytest.approx((norms**2).sum() / (wide.sum(0) ** 2).sum(), rel=1e-6)
    assert found.pairs
    assert found.to_mean
    for spread, values in ((found.pairs, pairs), (found.to_mean, to_mean)):
        assert spread.mean == pytest.approx(values.mean(), rel=1e-6)
        assert (spread.least, spread.most) == pytest.approx((values.min(), values.max()), rel=1e-6)


def test_updates_may_come_in_any_order() -> None:
    rows, weights = torch.tensor([[3.0, 0.0], [0.0, 4.0], [1.0, 1.0]]), [0.7, 0.2, 0.1]
    found = ClientUpdates([5, 6, 7], weights, torch.zeros(2), None, NOWHERE)
    for stack in ([2, 0], [1]):
        found.add([5 + client for client in stack], rows[stack])
    mixed, sorted_ = (update.to_json() for update in (found.record(), recorded(rows.tolist(), weights)))
    assert mixed.keys() == sorted_.keys()
    for name, value in sorted_.items():
        assert mixed[name] == pytest.approx(value, rel=1e-12), name


def test_only_shared_parameters_count() -> None:
    shared = torch.tensor([True, False, True])
    found = recorded([[3.0, 7.0, 0.0], [0.0, -9.0, 3.0]], shared=shared)
    assert (found.norms, found.drift) == ([3.0, 3.0], 4.5)


def test_running_statistics_part_relative_to_their_mean() -> None:
    found = ClientUpdates([0, 1], [0.25, 0.75], torch.zeros(1), None, torch.tensor([1, 2]))
    found.add([0, 1], torch.tensor([[0.0, 1.0, 0.0], [0.0, 5.0, 0.0]]))
    # mean 4, scatter ¼·9 + ¾·1
    assert found.record().batchnorm == pytest.approx(3 / 16, rel=1e-12)


@pytest.mark.parametrize(("name", "most"), [("HELD", 4 * 2 * 2 - 1), ("MOST_HELD", 1)])
def test_too_many_updates_have_everything_but_cosines(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, most)
    found = recorded([[3.0, 0.0], [0.0, 3.0]])
    assert (found.pairs, found.to_mean) == (None, None)
    assert (found.norms, found.drift, found.diversity) == ([3.0, 3.0], 4.5, 1.0)


def test_the_limit_of_what_is_held_is_reached_and_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 4 * 2 * 2)
    monkeypatch.setattr(module, "MOST_HELD", 2)
    assert recorded([[3.0, 0.0], [0.0, 3.0]]).pairs


@pytest.mark.parametrize("piece", [1, 15, 45, 1000])
def test_many_columns_are_taken_in_parts(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted_scatter, "PIECE", piece)
    vectors = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = WeightedScatter(torch.ones(20), whole=True)
    gram = found.add([vectors[:1], vectors[1:]], weights)
    wide = vectors.double() - 1
    mean, total = weights @ wide, wide.sum(0)
    assert torch.allclose(gram, wide @ wide.T, rtol=1e-12, atol=0)
    assert found.squared_lengths() == pytest.approx([float(mean @ mean), float(total @ total)], rel=1e-12)
    assert found.scatter == pytest.approx(float(weights @ (wide - weights @ wide).square().sum(1)), rel=1e-12)
    pairs, to_mean = cosines(gram, weights)
    unit = wide / wide.norm(dim=1, keepdim=True)
    assert pairs.tolist() == pytest.approx([float(unit[i] @ unit[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    assert to_mean.tolist() == pytest.approx((unit @ mean / mean.norm()).tolist())


@pytest.mark.parametrize("block", [1, 2, 3])
def test_updates_that_are_not_held_have_the_same_sums(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(7, 50, generator=torch.Generator().manual_seed(1)).tolist()
    weights = [0.1, 0.2, 0.05, 0.15, 0.2, 0.25, 0.05]
    whole = recorded(rows, weights)
    monkeypatch.setattr(module, "HELD", 4 * 50 * 6)
    monkeypatch.setattr(module, "BLOCK", block)
    found = recorded(rows, weights)
    assert (found.pairs, found.to_mean) == (None, None)
    assert found.norms == pytest.approx(whole.norms, rel=1e-12)
    for name in ("mean_norm", "drift", "diversity"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-12), name


@pytest.mark.parametrize("block", [1, 3])
def test_the_scatter_of_vectors_that_nearly_agree_keeps_its_digits(block: int) -> None:
    """A mean of 1e8 and deviations of 1e-3: the difference of squares has no digit left."""
    apart = torch.tensor([[1.0, -2.0], [0.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) * 2.0**-10
    vectors, weights = 2.0**27 + apart, torch.full((3,), 1 / 3, dtype=torch.float64)
    found = WeightedScatter(torch.zeros(2))
    for rows in torch.arange(3).split(block):
        found.add([vectors[rows]], weights[rows])
    exact = float((weights @ apart.square()).sum())
    assert found.scatter == pytest.approx(exact, rel=1e-4)
    mean = weights @ vectors
    naive = float(weights @ vectors.square().sum(1) - mean @ mean)
    assert abs(naive - exact) > 0.1 * exact
