"""Every cell, alignment, overlap and cost against dense float64 Hessians and closed forms."""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, orthogonal, rademacher, top_eigenpairs
from fedscope.landscape.heterogeneity.one_round.at_weights import QUANTITIES, LossAtWeights, cell
from fedscope.landscape.heterogeneity.one_round.averaging_cost import (
    AveragingCost,
    averaging_cost,
    expansions,
    mean_model,
)
from fedscope.landscape.heterogeneity.one_round.eigenspaces import (
    _extended,
    eigenspace,
    overlaps,
    update_alignment,
)
from fedscope.landscape.heterogeneity.one_round.flatness_gap import (
    FUNCTIONS,
    GAPS,
    FlatnessGap,
    Function,
    Place,
    flatness_gap,
)
from fedscope.landscape.heterogeneity.one_round.paired import Paired
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.streams import torch_stream
from tests.landscape.coverage import BatchMatrices

from .clients import SHARES, SIZE, Clients, clients, flat

F_MEAN: Place = ("global", "global")
F_OWN: Place = ("global", "own")
OWN_MEAN: Place = ("own", "global")
OWN_OWN: Place = ("own", "own")
DEFINITIONS: dict[str, tuple[Place, Place]] = {  # of F or f_k at w̄ or w_k
    "discrepancy": (F_MEAN, OWN_OWN),
    "averaging_own": (OWN_MEAN, OWN_OWN),
    "averaging_global": (F_MEAN, F_OWN),
    "function_at_own": (F_OWN, OWN_OWN),
    "function_at_global": (F_MEAN, OWN_MEAN),
}
TIGHT = {"tol": 1e-7, "probes": 100, "sampler": orthogonal}
QUICK = {"tol": 1e-2, "probes": 4, "sampler": rademacher}


def _cells(found: Clients, **named: object) -> dict[Place, list[LossAtWeights]]:
    places: dict[Place, list[LossAtWeights]] = {}
    for function, point in itertools.product(FUNCTIONS, FUNCTIONS):
        places[function, point] = [
            _cell(found, function, model if point == "own" else found.center, k, **named)
            for k, model in enumerate(found.models)
        ]
    return places


def _cell(found: Clients, function: Function, model: nn.Module, k: int, **named: object) -> LossAtWeights:
    data = found.own[k] if function == "own" else found.every
    op = found.operator(model, data)
    name = f"client {k}" if function == "own" else "global"
    return cell(op, name, losses=op.loss.losses, **(TIGHT | named))  # type: ignore[arg-type]


def _table(found: dict[Place, list[LossAtWeights]], quantity: str) -> FlatnessGap:
    return flatness_gap(
        quantity,  # type: ignore[arg-type]
        SHARES,
        {place: [one.of(quantity) for one in column] for place, column in found.items()},  # type: ignore[misc, arg-type]
    )


def _dense(found: Clients, place: Place, k: int) -> dict[str, float]:
    case = found.case(
        found.models[k] if place[1] == "own" else found.center,
        found.own[k] if place[0] == "own" else found.every,
    )
    matrix = case.dense()
    return {
        "loss": float(case.loss_at(case.weights)),
        "lambda_max": float(torch.linalg.eigvalsh(matrix)[-1]),
        "trace": float(matrix.trace()),
    }


@pytest.mark.parametrize("norm", [False, True])
def test_every_cell_and_gap_is_the_dense_one(norm: bool) -> None:
    found = clients(norm=norm)
    places = _cells(found)
    numbers = {place: [_dense(found, place, k) for k in range(3)] for place in places}
    for quantity in QUANTITIES:
        table = _table(places, quantity)
        dense = {place: [one[quantity] for one in column] for place, column in numbers.items()}
        for place, column in table.cells.items():
            assert [one.value for one in column] == pytest.approx(dense[place], rel=1e-6)
        assert GAPS.keys() == DEFINITIONS.keys()
        for name, (first, second) in DEFINITIONS.items():
            gaps = [a - b for a, b in zip(dense[first], dense[second], strict=True)]
            assert [one.value for one in table.gaps(name)] == pytest.approx(gaps, abs=1e-6)
            mean = sum(p * gap for p, gap in zip(SHARES, gaps, strict=True))
            assert table.gap(name).value == pytest.approx(mean, abs=1e-6)


def test_equal_clients_have_gaps_of_exactly_zero() -> None:
    one = clients()
    same = Clients([one.center] * 3, one.center, [one.every] * 3, one.every)
    places = _cells(same, **QUICK)
    for quantity in QUANTITIES:
        table = _table(places, quantity)
        for name in ("averaging_own", "averaging_global"):
            assert [(gap.value, gap.stderr_data, gap.stderr_probe) for gap in table.gaps(name)] == [
                (0, 0, 0)
            ] * 3
        assert [gap.value for name in GAPS for gap in table.gaps(name)] == [0] * 15


def test_clients_in_another_order_have_the_same_numbers_in_that_order() -> None:
    found, order = clients(), [2, 0, 1]
    turned = Clients(
        [found.models[k] for k in order], found.center, [found.own[k] for k in order], found.every
    )
    here, there = (_table(_cells(one, **QUICK), "trace") for one in (found, turned))
    for place, column in here.cells.items():
        assert [one.value for one in there.cells[place]] == [column[k].value for k in order]


def test_a_gap_of_one_function_has_the_error_of_its_batches_differences() -> None:
    found = clients()
    table = _table(_cells(found, quantities=("loss",)), "loss")
    gap = table.gaps("averaging_own")[1]
    inputs, targets = found.own[1]
    with torch.no_grad():
        parts = torch.stack([
            nn.functional.cross_entropy(found.center(x), y) -
            nn.functional.cross_entropy(found.models[1](x), y) for x, y in zip(inputs.split(SIZE),
            targets.split(SIZE), strict=True)
        ])  # fmt: skip
    assert gap.stderr_data == pytest.approx(float(parts.std() / len(parts) ** 0.5), rel=1e-9)
    assert gap.stderr_data < table.cells["own", "own"][1].stderr_data


def test_lambda_max_is_too_high_by_what_leaving_batches_out_says() -> None:
    found = clients()
    one = _cell(found, "global", found.center, 0, quantities=("lambda_max",)).lambda_max
    parts = [
        found.case(found.center, pair).dense()
        for pair in zip(*(side.split(SIZE) for side in found.every), strict=True)
    ]

    def largest(matrices: list[Tensor]) -> float:
        return float(torch.linalg.eigvalsh(torch.stack(matrices).mean(0))[-1])

    left = [largest(parts[:b] + parts[b + 1 :]) for b in range(len(parts))]
    bias = (len(parts) - 1) * (sum(left) / len(left) - largest(parts))
    assert one is not None
    assert bias > 0
    assert one.bias == pytest.approx(bias, rel=0.2)  # of six batches each is fitted to five
    low, high = one.interval()
    assert (low + high) / 2 == pytest.approx(one.value - one.bias)


@pytest.mark.parametrize("k", [1, 3])
def test_the_data_s_error_of_lambda_max_is_that_of_the_eigenpair(k: int) -> None:
    """From the samples one by one, times what the jackknife over batches says, as for any λ_max."""
    found = clients()
    op = found.operator(found.center, found.every)
    expected = top_eigenpairs(op, k=k, tol=1e-9, generator=torch_stream(0, "lanczos"))
    one = cell(op, "global", quantities=["lambda_max"], k=k, tol=1e-9).lambda_max
    assert one is not None
    assert expected.samples is not None
    assert one.data == pytest.approx((float(expected.stderr_data[0]), float(expected.dof_data[0])), rel=1e-6)
    assert one.bias == pytest.approx(float(expected.bias_data[0]))
    assert len(one.parts["global"].sizes) == len(found.every[1])


@pytest.mark.parametrize("k", [1, 3])
def test_the_alignment_is_the_dense_one(k: int) -> None:
    found = clients()
    op = found.operator(found.center, found.every)
    space = cell(op, "global", quantities=(), k=k, tol=1e-9).space
    update = flat(found.models[0]) - flat(found.center)
    result = update_alignment(op, space, update, samples="global")
    dense = found.case(found.center, found.every).dense()
    vectors = torch.linalg.eigh(dense).eigenvectors[:, -k:]
    square = float(update @ update)
    assert result.length == pytest.approx(square**0.5)
    assert result.rayleigh.value == pytest.approx(float(update @ dense @ update) / square, rel=1e-6)
    assert result.share is not None
    assert result.share.value == pytest.approx(float((vectors.T @ update).square().sum()) / square, rel=1e-6)
    assert result.random == k / len(update)
    assert 3 * update_alignment(op, space, 3 * update, samples="global").rayleigh.value == pytest.approx(
        3 * result.rayleigh.value
    )


def test_the_errors_of_a_share_are_those_of_leaving_batches_out() -> None:
    """Of the dense Hessians without each batch."""
    found, k = clients(), 2
    op = found.operator(found.center, found.every)
    pairs = top_eigenpairs(op, k=30, tol=1e-9)  # whose Krylov space is the whole space
    space = eigenspace(op, pairs, k=k, samples="global", kept=op.shape[0])
    update = flat(found.models[0]) - flat(found.center)
    update /= update.norm()
    share = update_alignment(op, space, update, samples="global").share
    inputs, targets = found.every
    batches = [
        found.case(found.center, pair).dense()
        for pair in zip(inputs.split(SIZE), targets.split(SIZE), strict=True)
    ]

    def captured(matrix: Tensor) -> float:
        return float((torch.linalg.eigh(matrix).eigenvectors[:, -k:].T @ update).square().sum())

    count = len(batches)
    left = torch.tensor([captured(sum(batches) - batch) for batch in batches], dtype=torch.float64)
    assert share is not None
    stderr = float(((count - 1) / count * (left - left.mean()).square().sum()).sqrt())
    assert share.stderr_data == pytest.approx(stderr, rel=1e-6)
    few = eigenspace(op, top_eigenpairs(op, k=k, tol=1e-2), k=k, samples="global")
    short = update_alignment(op, few, update, samples="global").share
    assert short is not None
    assert short.stderr_data == pytest.approx(stderr, rel=0.2)
    assert share.bias == pytest.approx(float((count - 1) * (left.mean() - captured(sum(batches)))), abs=1e-7)  # type: ignore[arg-type]


def test_overlaps_are_the_dense_ones() -> None:
    found, k = clients(), 2
    operators = [found.operator(model, data) for model, data in zip(found.models, found.own, strict=True)]
    spaces = [cell(op, str(i), quantities=(), k=k, tol=1e-9).space for i, op in enumerate(operators)]
    result, products = overlaps(operators, [space for space in spaces if space])
    cases = [found.case(model, data) for model, data in zip(found.models, found.own, strict=True)]
    vectors = [torch.linalg.eigh(case.dense()).eigenvectors[:, -k:] for case in cases]
    for i, j in itertools.product(range(3), range(3)):
        one = result[i][j]
        if one is None:
            assert i == j
            continue
        dense = float((vectors[i].T @ vectors[j]).square().sum()) / k
        assert one.value == pytest.approx(dense, rel=1e-6)
        assert set(one.parts) == {str(i), str(j)}
        assert one.value == result[j][i].value  # type: ignore[union-attr]
    assert 0 < products <= 2 * 3 * 2 * k


def _cost(found: Clients, center: nn.Module, data: str) -> AveragingCost:
    rows = torch.stack([flat(model) - flat(center) for model in found.models])
    if data == "global":
        op, loss = found.operator(center, found.every), found.loss(center, found.every)
        return averaging_cost(SHARES, expansions(op, loss, rows, samples="global"))
    own = [
        expansions(found.operator(center, pair), found.loss(center, pair), rows[k : k + 1], samples=str(k))[0]
        for k, pair in enumerate(found.own)
    ]
    return averaging_cost(SHARES, own)


@pytest.mark.parametrize("data", ["global", "own"])
def test_the_cost_of_averaging_is_the_dense_one_in_every_order(data: str) -> None:
    found = clients()
    center = mean_model(found.models, SHARES)
    torch.testing.assert_close(
        flat(center), sum(p * flat(model) for p, model in zip(SHARES, found.models, strict=True))
    )
    mean = _cost(found, center, data).mean
    measured = first = second = 0.0
    for k, p in enumerate(SHARES):
        case = found.case(center, found.every if data == "global" else found.own[k])
        delta, weights = flat(found.models[k]) - flat(center), case.weights
        gradient = torch.func.grad(case.loss_at)(weights)
        measured += p * float(case.loss_at(weights + delta) - case.loss_at(weights))
        first += p * float(gradient @ delta)
        second += p * float(delta @ case.dense() @ delta) / 2
    assert mean.measured.value == pytest.approx(measured, rel=1e-9)
    assert mean.first.value == pytest.approx(first, abs=1e-12)
    assert mean.second.value == pytest.approx(second, rel=1e-9)
    assert mean.remainder.value == pytest.approx(measured - first - second, abs=1e-12)
    assert (abs(first) < 1e-15) == (data == "global")


def test_of_quadratic_losses_the_second_order_is_all() -> None:
    torch.manual_seed(0)
    models: list[nn.Module] = [nn.Linear(5, 2).double() for _ in SHARES]
    center = mean_model(models, SHARES)
    inputs, targets = torch.randn(40, 5).double(), torch.randn(40, 2).double()
    batches = Batches(inputs, targets, 8)
    rows = torch.stack([flat(model) - flat(center) for model in models])
    found = expansions(
        Hessian(center, mse_loss, batches), FlatLoss(center, mse_loss, batches), rows, samples="global"
    )
    mean = averaging_cost(SHARES, found).mean
    assert mean.measured.value > 0.01
    assert abs(mean.remainder.value) < 1e-12
    assert abs(mean.first.value) < 1e-12
    assert mean.remainder.stderr_data < 1e-12
    # in closed form: the mean over samples and outputs of the squared spread of the predictions
    with torch.no_grad():
        spread = sum(
            p * (model(inputs) - center(inputs)) ** 2 for p, model in zip(SHARES, models, strict=True)
        )
    assert mean.second.value == pytest.approx(float(spread.mean()), rel=1e-12)


def test_the_mean_of_models_averages_statistics_and_keeps_equal_models() -> None:
    found = clients(norm=True)
    first, second = found.models[0][1], found.models[1][1]  # type: ignore[index]
    second.running_mean += 1
    second.num_batches_tracked += 5
    mean = mean_model(found.models[:2], (0.25, 0.75))[1]  # type: ignore[index]
    torch.testing.assert_close(mean.running_mean, first.running_mean + 0.75)
    assert int(mean.num_batches_tracked) == int(second.num_batches_tracked)
    same = mean_model([found.center] * 3, SHARES)
    assert torch.equal(flat(same), flat(found.center))


def test_what_is_no_mean_is_refused() -> None:
    found = clients()
    with pytest.raises(UserError, match="add up to 1"):
        mean_model(found.models, (1.0, 1.0, 1.0))
    with pytest.raises(UserError, match=r"differ in 0\.weight"):
        mean_model([found.center, nn.Sequential(nn.Linear(3, 5))], (0.5, 0.5))
    with pytest.raises(UserError, match="the client did not move"):
        op = found.operator(found.center, found.every)
        update_alignment(op, None, torch.zeros(op.shape[0]), samples="global")
    with pytest.raises(UserError, match="is missing"):
        flatness_gap("loss", (1.0,), {("own", "own"): [Paired(0.0, {})]})
    with pytest.raises(UserError, match="takes the losses"):
        cell(op, "global")


def test_the_separation_is_the_distance_of_two_eigenvalues_in_errors() -> None:
    found = clients()
    op = found.operator(found.center, found.every)
    space = cell(op, "global", quantities=(), k=2, tol=1e-9).space
    assert space is not None
    inputs, targets = found.every
    dense = found.case(found.center, found.every).dense()
    values, vectors = torch.linalg.eigh(dense)
    parts = torch.stack([
        found.case(found.center, pair).dense()
        for pair in zip(inputs.split(SIZE), targets.split(SIZE), strict=True)
    ])  # fmt: skip
    forms = torch.einsum("ik,bij,jk->kb", vectors, parts, vectors)[[-2, -3]]
    stderr = float((forms[0] - forms[1]).std() / len(parts) ** 0.5)
    assert space.separation == pytest.approx(float(values[-2] - values[-3]) / stderr, rel=1e-3)


def test_an_extended_basis_has_each_batchs_dense_projection() -> None:
    draws = torch.Generator().manual_seed(0)
    matrices = torch.randn(3, 12, 12, generator=draws, dtype=torch.float64)
    matrices = matrices + matrices.mT
    basis = torch.eye(12, dtype=torch.float64)[:2]
    vectors = torch.nn.functional.normalize(torch.randn(2, 12, generator=draws, dtype=torch.float64))
    whole, batches, spent = _extended(
        BatchMatrices(matrices, 5), basis, basis @ matrices @ basis.T, vectors, steps=2
    )
    assert (len(whole), spent) == (6, 4)
    torch.testing.assert_close(whole @ whole.T, torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(batches, whole @ matrices @ whole.T)
