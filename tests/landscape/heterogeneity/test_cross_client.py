import copy
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import (
    Diagonal,
    Hessian,
    LambdaOperator,
    cross_client,
    deflated_diagonal,
    diagonal,
    orthogonal,
)
from fedscope.landscape.heterogeneity.client_diagonals import Diagonals
from fedscope.landscape.heterogeneity.similarity import compare
from fedscope.landscape.operators.base import Operator
from fedscope.records.entries import estimate_entry
from tests import tiers
from tests.landscape.cases import Case, mlp, symmetric

ESTIMATORS = pytest.mark.parametrize("estimator", [diagonal, deflated_diagonal])
BLOCKS = (("a", 30), ("b", 10))


def _clients(case: Case, count: int) -> list[Case]:
    """The case at weights moved in different directions."""
    cases = []
    for client in range(count):
        model = copy.deepcopy(case.model)
        generator = torch.Generator().manual_seed(client)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype), alpha=0.3 * client)
        cases.append(Case(case.name, model, case.loss_fn, case.inputs, case.targets, case.batch_size))
    return cases


def _expected(diagonals: Tensor) -> tuple[Tensor, Tensor]:
    norms = diagonals.norm(dim=1)
    return (norms[:, None] - norms) ** 2, diagonals @ diagonals.T / torch.outer(norms, norms)


def _noisy(count: int, seed: int = 0) -> list[Tensor]:
    """Matrices whose off-diagonal part makes every Hutchinson probe noisy."""
    generator = torch.Generator().manual_seed(seed)
    common = symmetric(torch.linspace(-1, 3, 40), seed=5)
    return [
        common + torch.diag(2 * torch.rand(40, generator=generator, dtype=torch.float64))
        for _ in range(count)
    ]


def _operators(matrices: list[Tensor], n: int = 40) -> Iterator[Operator]:
    blocks = (*BLOCKS, ("rest", n - 40)) if n > 40 else BLOCKS
    return (LambdaOperator(lambda v, m=m: m @ v, n, blocks=blocks) for m in matrices)  # type: ignore[misc]


def _block_sums(diagonals: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return torch.stack([part.sum(1) for part in torch.split(diagonals, list(sizes), dim=1)], dim=1)


def test_a_full_orthogonal_set_gives_the_dense_values(case: Case) -> None:
    cases = _clients(case, 3)
    diagonals = torch.stack([one.dense().diagonal() for one in cases])
    exact = partial(diagonal, sampler=orthogonal)
    found = cross_client((one.operator for one in cases), probes=diagonals.shape[1], estimator=exact)
    readings = {"parameter": diagonals, "tensor": _block_sums(diagonals, case.operator.numels)}
    off = ~torch.eye(3, dtype=torch.bool)
    for reading, values in readings.items():
        H_N, H_D = _expected(values)
        torch.testing.assert_close(found.H_N_matrix[reading], H_N, rtol=1e-6, atol=1e-14)  # type: ignore[index]
        torch.testing.assert_close(found.H_D_matrix[reading], H_D, rtol=1e-6, atol=1e-14)  # type: ignore[index]
        assert found.H_N[reading].value == pytest.approx(float(H_N[off].mean()), rel=1e-6)  # type: ignore[index]
        assert found.H_D[reading].value == pytest.approx(float(H_D[off].mean()), rel=1e-6)  # type: ignore[index]
        assert found.H_N[reading].stderr == found.H_D[reading].stderr == 0  # type: ignore[index]
        for resolved in (found.H_N_resolved[reading], found.H_D_resolved[reading]):  # type: ignore[index]
            assert torch.as_tensor(resolved).all()
    assert found.matvecs == 3 * diagonals.shape[1]
    assert found.clients == 3
    torch.testing.assert_close(
        torch.tensor([trace.value for trace in found.traces]), diagonals.sum(1).float(), rtol=1e-5, atol=1e-6
    )
    assert {trace.stderr for trace in found.traces} == {0.0}


def test_the_clients_traces_have_the_error_of_their_probes() -> None:
    matrices = _noisy(2)
    found = cross_client(_operators(matrices), probes=256, estimator=diagonal)
    for trace, matrix in zip(found.traces, matrices, strict=True):
        # of a Rademacher probe: twice the sum of the squares off the diagonal (Hutchinson 1990)
        variance = 2 * float((matrix - torch.diag(matrix.diagonal())).square().sum())
        assert trace.stderr == pytest.approx((variance / 256) ** 0.5, rel=0.5)
        assert trace.value == pytest.approx(float(matrix.trace()), abs=4 * trace.stderr)


@pytest.mark.parametrize("pairs", ["distinct", "all_including_self"])
def test_equal_clients_differ_by_exactly_nothing(pairs: str) -> None:
    case = mlp()
    operators = [Hessian(copy.deepcopy(case.model), case.loss_fn, case.batches) for _ in range(3)]
    found = cross_client(operators, rtol=0.1, groups=4, pairs=pairs)  # type: ignore[arg-type]
    assert found.converged
    for reading in ("tensor", "parameter"):
        assert found.H_N[reading].value == found.H_N[reading].stderr == 0
        assert found.H_D[reading].value == 1
        assert found.H_D[reading].stderr == 0
        assert torch.equal(found.H_D_matrix[reading], torch.ones(3, 3, dtype=torch.float64))


def test_the_two_averages_obey_their_relation() -> None:
    distinct = cross_client(_operators(_noisy(4)), probes=96)
    whole = cross_client(_operators(_noisy(4)), probes=96, pairs="all_including_self")
    for reading in ("tensor", "parameter"):
        assert distinct.H_N[reading].value > 0
        assert whole.H_N[reading].value == pytest.approx(0.75 * distinct.H_N[reading].value, rel=1e-12)
        assert whole.H_D[reading].value == pytest.approx((3 * distinct.H_D[reading].value + 1) / 4, rel=1e-12)


def test_matrices_are_symmetric_with_a_known_diagonal() -> None:
    found = cross_client(_operators(_noisy(3)), probes=64)
    for reading in ("tensor", "parameter"):
        H_N, H_D = found.H_N_matrix[reading], found.H_D_matrix[reading]
        torch.testing.assert_close(H_N, H_N.T)
        torch.testing.assert_close(H_D, H_D.T)
        assert H_N.diagonal().tolist() == [0.0] * 3
        assert H_D.diagonal().tolist() == [1.0] * 3


@pytest.mark.drawn
@ESTIMATORS
def test_the_corrected_values_are_unbiased_and_their_errors_honest(estimator: Diagonals) -> None:
    matrices = _noisy(3)
    H_N, H_D = _expected(torch.stack([m.diagonal() for m in matrices]))
    off = ~torch.eye(3, dtype=torch.bool)
    runs = [
        cross_client(_operators(matrices), probes=32, groups=8, seed=seed, estimator=estimator)
        for seed in range(tiers.draws(40, 150))
    ]
    for found, truth in (
        ([(run.H_N_matrix["parameter"], run.H_N["parameter"].stderr) for run in runs], H_N),
        ([(run.H_D_matrix["parameter"], run.H_D["parameter"].stderr) for run in runs], H_D),
    ):
        values = torch.stack([matrix[off].mean() for matrix, _ in found])
        standard_error = float(values.std()) / len(runs) ** 0.5
        assert abs(float(values.mean() - truth[off].mean())) < 4 * standard_error
        claimed = sum(stderr**2 for _, stderr in found) / len(runs)
        assert 0.5 < claimed / float(values.var()) < 2


def _spiked(count: int) -> list[Tensor]:
    """Matrices with a network's spectrum: few large eigenvalues, of other vectors in every client."""
    values = torch.cat([torch.tensor([300.0, 200.0, 120.0, 60.0]), torch.linspace(-1, 4, 296)])
    return [symmetric(values * (1 + client / 10), seed=client) for client in range(count)]


def test_a_basis_lowers_the_errors_many_times_at_equal_products() -> None:
    plain = cross_client(_operators(_spiked(3), 300), probes=96, seed=3, estimator=diagonal)
    deflated = cross_client(_operators(_spiked(3), 300), probes=64, seed=3)
    assert deflated.matvecs == plain.matvecs == 3 * 96
    assert (deflated.deflated, plain.deflated) == (32, 0)
    H_N, H_D = _expected(torch.stack([m.diagonal() for m in _spiked(3)]))
    off = ~torch.eye(3, dtype=torch.bool)
    for truth, noisy, found in (
        (H_N, plain.H_N["parameter"], deflated.H_N["parameter"]),
        (H_D, plain.H_D["parameter"], deflated.H_D["parameter"]),
    ):
        assert found.stderr < noisy.stderr / 5
        assert found.value == pytest.approx(float(truth[off].mean()), abs=4 * found.stderr)


def test_a_basis_leaves_the_probes_as_they_are() -> None:
    """A Lanczos process that breaks down draws replacements: not from what draws the probes."""
    after = []
    for matrix in (torch.eye(40, dtype=torch.float64), _noisy(1)[0]):
        generator = torch.Generator().manual_seed(7)
        op = LambdaOperator(lambda v, m=matrix: m @ v, 40)  # type: ignore[misc]
        deflated_diagonal(op, probes=8, generator=generator)
        after.append(generator.get_state())
    assert torch.equal(*after)


def test_a_basis_takes_no_more_rows_than_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    (op,) = _operators(_noisy(1))
    for memory, rows in ((3 * 40 * 8, 3), (100, 0)):
        monkeypatch.setattr("fedscope.landscape.spectral.deflation.MEMORY", memory)
        found = deflated_diagonal(op, probes=32, generator=torch.Generator().manual_seed(0))
        assert found.trace.deflated == rows
        assert found.matvecs == 32 + rows


def test_the_plug_in_norm_would_have_been_off_by_many_errors() -> None:
    """The reason for the groups: the bias that they remove is many times the error left."""
    matrix = _noisy(1)[0]
    truth = float(matrix.diagonal().norm() ** 2)
    plug_in, grouped = [], []
    for seed in range(400):
        generator = torch.Generator().manual_seed(seed)
        found = diagonal(LambdaOperator(lambda v: matrix @ v, 40), probes=8, generator=generator)
        plug_in.append(float(found.parameter @ found.parameter))
        total = found.groups.sum(0)
        grouped.append(float(total @ total - (found.groups**2).sum()) / 56)
    error = float(torch.tensor(grouped).std()) / 20
    assert abs(sum(grouped) / 400 - truth) < 4 * error
    assert sum(plug_in) / 400 - truth > 8 * error


@pytest.mark.drawn
def test_clients_of_equal_norm_show_no_gap_on_average() -> None:
    first = _noisy(1)[0]
    second = first.flip(0, 1)  # the same diagonal in another order, seen by the probes with other noise
    runs = [
        cross_client(_operators([first, second]), probes=24, groups=8, seed=seed, estimator=diagonal)
        for seed in range(tiers.draws(40, 200))
    ]
    gaps = torch.tensor([float(run.H_N_matrix["parameter"][0, 1]) for run in runs])
    # Left uncorrected, the mean of the squared gap would be many standard errors above zero.
    assert abs(float(gaps.mean())) < 4 * float(gaps.std()) / len(runs) ** 0.5
    below = [run.H_N["parameter"] for run in runs if run.H_N["parameter"].value < 0]
    assert below
    assert not any(one.resolved for one in below)
    assert not any(
        run.H_N_resolved["parameter"][0, 1] for run, gap in zip(runs, gaps, strict=True) if gap < 0
    )
    assert all(one.interval()[1] > 0 for one in below)  # what H_N is at most is known all the same


def test_noise_above_the_signal_is_shown_as_nan() -> None:
    matrix = symmetric(torch.linspace(-1, 1, 40))
    matrix -= torch.diag(matrix.diagonal())
    clients = _operators([matrix, matrix + torch.eye(40)])
    found = cross_client(clients, probes=6, groups=3, seed=1, estimator=diagonal)
    assert math.isnan(found.H_D["parameter"].value)
    assert math.isnan(found.H_N["parameter"].value)
    assert not found.H_D["parameter"].resolved
    assert not found.H_N["parameter"].resolved


def test_a_client_below_the_noise_leaves_the_other_pairs_as_they_are() -> None:
    faint = symmetric(torch.linspace(-1, 1, 40))
    faint -= torch.diag(faint.diagonal())
    clients = [*_noisy(2), faint]
    found = cross_client(_operators(clients), probes=32, groups=8, seed=1, estimator=diagonal)
    alone = cross_client(_operators(clients[:2]), probes=32, groups=8, seed=1, estimator=diagonal)
    assert found.squared_norms["parameter"][2].value < 0
    assert [norm.resolved for norm in found.squared_norms["parameter"]] == [True, True, False]
    for matrix, flags, pair in (
        (found.H_N_matrix, found.H_N_resolved, alone.H_N_matrix),
        (found.H_D_matrix, found.H_D_resolved, alone.H_D_matrix),
    ):
        torch.testing.assert_close(matrix["parameter"][:2, :2], pair["parameter"])
        assert flags["parameter"][:2, :2].all()
        assert not flags["parameter"][2].any()
        assert matrix["parameter"][2].isnan().all()


def test_a_cosine_beyond_its_range_is_kept_and_unresolved() -> None:
    matrix = _noisy(1)[0]
    near = [matrix, matrix + 0.1 * symmetric(torch.linspace(-1, 1, 40), seed=9)]
    runs = [
        cross_client(_operators(near), probes=8, groups=8, seed=seed, estimator=diagonal)
        for seed in range(20)
    ]
    beyond = [run for run in runs if run.H_D["parameter"].value > 1]
    assert 0 < len(beyond) < len(runs)
    for run in runs:
        expected = run.H_D["parameter"].value <= 1
        assert run.H_D["parameter"].resolved == bool(run.H_D_resolved["parameter"][0, 1]) == expected
    entry = estimate_entry(beyond[0].H_D["parameter"])
    assert entry
    assert entry["value"] > 1 >= entry["interval"][1]
    assert entry["resolved"] is False


def test_clients_are_taken_one_at_a_time_and_progress_runs_on() -> None:
    events: list[str] = []

    def operators() -> Iterator[Operator]:
        for client, matrix in enumerate(_noisy(2)):
            events.append(f"client {client}")
            yield LambdaOperator(lambda v, m=matrix: m @ v, 40)  # type: ignore[misc]

    cross_client(operators(), probes=3, groups=3, progress=lambda done, *_: events.append(str(done)))
    own = [str(done) for done in range(1, 9)]  # one product for the basis, three probes
    assert events == ["client 0", *own[:4], "client 1", *own[4:]]


def test_the_seed_decides_alone() -> None:
    first, again = (cross_client(_operators(_noisy(2)), probes=8, groups=8, seed=3) for _ in range(2))
    other = cross_client(_operators(_noisy(2)), probes=8, groups=8, seed=4)
    assert torch.equal(first.H_N_matrix["tensor"], again.H_N_matrix["tensor"])
    assert not torch.equal(first.H_N_matrix["tensor"], other.H_N_matrix["tensor"])


def test_impossible_comparisons_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2"):
        cross_client(list(_operators(_noisy(1))))
    with pytest.raises(UserError, match="at least 3"):
        cross_client(list(_operators(_noisy(2))), groups=2)
    with pytest.raises(UserError, match="not both"):
        cross_client(list(_operators(_noisy(2))), probes=32, rtol=0.1)
    with pytest.raises(UserError, match="give a list"):
        cross_client(_operators(_noisy(2)), rtol=0.1)
    with pytest.raises(UserError, match="all_including_self"):
        cross_client(_operators(_noisy(2)), pairs="some")  # type: ignore[arg-type]
    mixed = [LambdaOperator(lambda v: v, 4), LambdaOperator(lambda v: v, 5)]
    with pytest.raises(UserError, match="client 1"):
        cross_client(mixed)


def test_probes_are_taken_until_the_intervals_are_narrow() -> None:
    operators = list(_operators(_noisy(3)))
    stopped = partial(cross_client, operators, max_probes=4000, seed=2, estimator=diagonal)
    found = stopped(rtol=0.4)
    assert found.converged
    for estimate in (found.H_N["parameter"], found.H_D["parameter"]):
        low, high = estimate.interval()
        assert high - low <= 2 * 0.4 * estimate.value
        assert estimate.dof == 15
    half = stopped(rtol=0.2)
    assert half.converged
    assert 2 < half.probes[0] / found.probes[0] < 8
    tensor = stopped(rtol=0.4, aim="tensor")
    low, high = tensor.H_N["tensor"].interval()
    assert high - low <= 2 * 0.4 * tensor.H_N["tensor"].value
    assert found.matvecs == sum(found.probes)


def test_stages_add_up_to_one_estimate() -> None:
    """What counts is how many probes were taken, not in how many stages."""
    taken: list[int] = []

    def counted(op: Operator, **options: Any) -> Diagonal:
        taken.append(options["probes"])
        return diagonal(op, **options)

    operators = list(_operators(_noisy(2)))
    staged = cross_client(operators, rtol=0.4, estimator=counted, max_probes=4000, groups=4)
    assert len(set(taken)) > 1
    samples = [_samples(matrix, taken[::2], groups=4) for matrix in _noisy(2)]
    whole = compare(samples, "distinct")
    assert staged.H_N["parameter"].value == pytest.approx(whole.H_N.value, rel=1e-9)
    assert staged.H_D["parameter"].stderr == pytest.approx(whole.H_D.stderr, rel=1e-9)


def _samples(matrix: Tensor, stages: list[int], groups: int) -> Tensor:
    """Group means of z⊙Az over all stages; each begins where the sampler of the last one stopped."""
    generator, rows = torch.Generator().manual_seed(0), []
    for probes in stages:
        for _ in range(probes):
            z = (2 * torch.randint(2, (40,), generator=generator) - 1).double()
            rows.append(z * (matrix @ z))
        torch.randint(2, (40,), generator=generator)  # drawn to see whether the sampler goes on
    return torch.stack([torch.stack(rows[g::groups]).mean(0) for g in range(groups)])


def test_like_clients_have_no_relative_precision() -> None:
    first = _noisy(1)[0]
    compared = partial(cross_client, estimator=diagonal)
    found = compared(list(_operators([first, first.flip(0, 1)])), rtol=0.1, max_probes=200)
    assert found.converged is False
    assert found.probes == (192, 192)
    lows = [
        compared(_operators([first, first.flip(0, 1)]), probes=32, seed=seed).H_N["parameter"].interval()[0]
        for seed in range(20)
    ]
    assert sum(low <= 0 for low in lows) >= 16  # of which 19 are expected to hold the truth, 0


def test_inner_products_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cross_client(_operators(_noisy(3)), probes=32)
    monkeypatch.setattr("fedscope.landscape.heterogeneity.similarity._CHUNK", 100)
    pieces = cross_client(_operators(_noisy(3)), probes=32)
    for reading in ("parameter", "tensor"):
        for name in ("H_N_matrix", "H_D_matrix"):
            one, other = getattr(whole, name)[reading], getattr(pieces, name)[reading]
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, equal_nan=True)
