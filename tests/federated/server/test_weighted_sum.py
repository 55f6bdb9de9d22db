import pytest
import torch

from fedscope.errors import UserError
from fedscope.federated.server.weighted_sum import WeightedSum
from fedscope.federated.setup.sampling import sample_clients


def test_the_mean_is_weighted() -> None:
    mean = WeightedSum()
    mean.add(torch.tensor([0.0, 4.0]), 1 / 4)
    mean.add(torch.tensor([4.0, 4.0]), 3 / 4)
    assert mean.value.tolist() == [3.0, 4.0]
    assert mean.value.dtype == torch.float64


def test_equal_uploads_come_back_bit_for_bit() -> None:
    upload, mean = torch.rand(5000, generator=torch.Generator().manual_seed(0)), WeightedSum()
    for _ in range(7):
        mean.add(upload, 1 / 7)
    assert torch.equal(mean.value.float(), upload)


def test_an_upload_may_change_after_it_was_added() -> None:
    upload, mean = torch.ones(2), WeightedSum()
    mean.add(upload, 1.0)
    upload.fill_(7)
    assert mean.value.tolist() == [1.0, 1.0]


def test_there_is_no_sum_of_nothing() -> None:
    with pytest.raises(ValueError, match="no vectors"):
        _ = WeightedSum().value


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
