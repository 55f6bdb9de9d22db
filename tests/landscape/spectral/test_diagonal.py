import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import LambdaOperator, diagonal, orthogonal
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from tests.landscape.cases import Case, matrix_operator


def _block_sums(case: Case, values: Tensor) -> Tensor:
    return torch.stack([part.sum() for part in torch.split(values, list(case.operator.numels))])


def test_a_full_orthogonal_set_sums_to_the_trace_of_each_probe(case: Case, dense: Tensor) -> None:
    found = diagonal(case.operator, probes=len(dense), sampler=orthogonal)
    assert found.trace.value == pytest.approx(float(dense.trace()), rel=1e-9)
    torch.testing.assert_close(found.parameter, dense.diagonal(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.tensor, _block_sums(case, dense.diagonal()), rtol=1e-6, atol=1e-12)
    assert float(found.parameter_stderr.abs().max()) == float(found.tensor_stderr.abs().max()) == 0
    assert found.groups.shape == (1, len(dense))
    assert list(found.names) == case.names


def test_one_rademacher_product_is_exact_for_a_diagonal_matrix() -> None:
    entries = torch.tensor([3.0, -1.0, 0.0, 0.7], dtype=torch.float64)
    blocks = (("a", 1), ("b", 3))
    operator = LambdaOperator(lambda v: entries * v, 4, blocks=blocks)
    found = diagonal(operator, probes=8, groups=4)
    assert torch.equal(found.parameter, entries)
    torch.testing.assert_close(found.tensor, torch.tensor([3.0, -0.3], dtype=torch.float64))
    assert float(found.parameter_stderr.max()) == 0
    assert torch.equal(found.groups, entries.expand(4, 4))
    assert found.names == ("a", "b")


def test_the_errors_cover_the_truth(case: Case, dense: Tensor) -> None:
    scores, block_scores = [], []
    truth = dense.diagonal()
    operator = LambdaOperator(lambda v: dense @ v, len(dense), blocks=case.operator.blocks)
    for seed in range(20):
        found = diagonal(operator, probes=40, generator=torch.Generator().manual_seed(seed))
        used = found.parameter_stderr > 0
        scores.append(((found.parameter - truth)[used] / found.parameter_stderr[used]) ** 2)
        used = found.tensor_stderr > 0
        block_scores.append(
            ((found.tensor - _block_sums(case, truth))[used] / found.tensor_stderr[used]) ** 2
        )
    assert 0.8 < float(torch.cat(scores).mean()) < 1.3
    assert 0.6 < float(torch.cat(block_scores).mean()) < 1.8


def test_what_a_krylov_space_knows_is_exact(case: Case, dense: Tensor) -> None:
    start = torch.randn(len(dense), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    process = Lanczos(case.operator, start, generator=torch.Generator(), by_batch=True)
    for _ in range(8):
        process.step()
    known = process.subspace()
    exact = diagonal(case.operator, known=known, probes=len(dense), sampler=orthogonal)
    torch.testing.assert_close(exact.parameter, dense.diagonal(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(exact.tensor, _block_sums(case, dense.diagonal()), rtol=1e-6, atol=1e-12)
    plain, deflated = (diagonal(case.operator, known=space, probes=16) for space in (None, known))
    assert float(deflated.tensor_stderr.norm()) < 0.8 * float(plain.tensor_stderr.norm())
    assert float(deflated.parameter_stderr.norm()) < 0.8 * float(plain.parameter_stderr.norm())
    errors = (deflated.parameter - dense.diagonal()) / deflated.parameter_stderr.clamp(min=1e-12)
    assert 0.5 < float(errors[dense.diagonal() != 0].square().mean()) < 2
    torch.testing.assert_close(deflated.groups.mean(0), deflated.parameter)


def test_the_tensors_come_with_their_errors(case: Case) -> None:
    found = diagonal(case.operator, probes=12)
    tensors = found.tensors()
    assert list(tensors) == case.names
    first = tensors[case.names[0]]
    assert (first.value, first.stderr, first.dof) == (
        float(found.tensor[0]),
        float(found.tensor_stderr[0]),
        11,
    )


def test_groups_are_disjoint_means_of_the_same_products(case: Case) -> None:
    found = diagonal(case.operator, probes=12, groups=3)
    torch.testing.assert_close(found.groups.mean(0), found.parameter)
    torch.testing.assert_close(found.tensor_groups.mean(0), found.tensor)
    assert not torch.equal(found.groups[0], found.groups[1])
    torch.testing.assert_close(found.tensor.sum(), torch.tensor(found.trace.value, dtype=torch.float64))
    torch.testing.assert_close(found.parameter.sum(), found.tensor.sum())


def test_groups_of_unequal_size() -> None:
    matrix = torch.ones(3, 3).double()
    found = diagonal(matrix_operator(matrix), probes=7, groups=3)
    weighted = (3 * found.groups[0] + 2 * found.groups[1] + 2 * found.groups[2]) / 7
    torch.testing.assert_close(weighted, found.parameter)


def test_non_finite_entries_stay_where_they_are() -> None:
    scale = torch.tensor([1.0, torch.nan, 2.0], dtype=torch.float64)
    found = diagonal(LambdaOperator(lambda v: scale * v, 3), probes=3, groups=3)
    assert found.parameter.isnan().tolist() == [False, True, False]


def test_impossible_requests_are_refused() -> None:
    operator = matrix_operator(torch.eye(3).double())
    with pytest.raises(UserError, match="at least 2"):
        diagonal(operator, probes=1, groups=1)
    with pytest.raises(UserError, match="1 to 4"):
        diagonal(operator, probes=4, groups=5)
