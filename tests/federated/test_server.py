import pytest
import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.federated.sampling import sample_clients
from fedscope.federated.server import WeightedMean


def filled(value: float, batches: int = 0) -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    for tensor in model.state_dict().values():
        tensor.fill_(value if tensor.is_floating_point() else batches)
    return model


def test_the_mean_is_weighted_by_samples_buffers_included() -> None:
    mean, model = WeightedMean(), filled(9.0)
    mean.add(filled(0.0, batches=5).state_dict(), 1 / 4)
    mean.add(filled(4.0, batches=2).state_dict(), 3 / 4)
    mean.load_into(model)
    state = model.state_dict()
    assert state.pop("1.num_batches_tracked").item() == 5
    assert all((t == 3).all() for t in state.values())


def test_equal_uploads_come_back_bit_for_bit() -> None:
    upload, mean, model = nn.Linear(50, 50), WeightedMean(), nn.Linear(50, 50)
    for _ in range(7):
        mean.add(upload.state_dict(), 1 / 7)
    mean.load_into(model)
    assert torch.equal(model.weight, upload.weight)


def test_an_upload_may_change_after_it_was_added() -> None:
    upload, mean, model = filled(1.0), WeightedMean(), filled(0.0)
    mean.add(upload.state_dict(), 1.0)
    upload.load_state_dict(filled(7.0, batches=7).state_dict())
    mean.load_into(model)
    assert (model.state_dict()["0.weight"] == 1).all()


def test_a_fixed_fraction_is_exact_and_ascending() -> None:
    assert len(sample_clients("fixed_fraction", 100, 0.1, 0, 5)) == 10
    assert sample_clients("fixed_fraction", 7, 1.0, 0, 0) == [0, 1, 2, 3, 4, 5, 6]
    drawn = [sample_clients("fixed_fraction", 30, 0.29, 0, t) for t in range(20)]
    assert all(len(d) == 8 and d == sorted(set(d)) for d in drawn)
    assert len({tuple(d) for d in drawn}) == 20


def test_bernoulli_varies_around_its_mean_and_is_never_empty() -> None:
    sizes = [len(sample_clients("bernoulli", 100, 0.1, 1, t)) for t in range(300)]
    assert sum(sizes) / 300 == pytest.approx(10, abs=4 * (9 / 300) ** 0.5)
    assert len(set(sizes)) > 5
    assert all(sample_clients("bernoulli", 5, 0.01, 1, t) for t in range(50))


def test_nobody_is_an_error() -> None:
    with pytest.raises(UserError, match="is nobody"):
        sample_clients("fixed_fraction", 5, 0.1, 0, 0)
