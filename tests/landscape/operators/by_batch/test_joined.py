"""Where no batch is told apart, small batches are taken together: the same products, from fewer graphs."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from fedscope.landscape import (
    CrossClient,
    EmpiricalFisher,
    GaussNewton,
    Hessian,
    MonteCarloFisher,
    Operator,
    Preconditioned,
    cross_client,
    deflated_diagonal,
    spectral_density,
)
from fedscope.landscape.operators import graph_cache
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.krylov_basis import Remainder
from fedscope.landscape.operators.product_cache import Journaled
from tests.landscape.cases import Case, convnet, mlp

KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher, MonteCarloFisher]
V = torch.randn(81, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def seen(case: Case) -> list[int]:
    """The samples of each forward pass from now on."""
    sizes: list[int] = []
    case.model.register_forward_hook(lambda _module, args, _output: sizes.append(len(args[0])))
    return sizes


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_the_products_that_tell_batches_apart(kind: type[LossOperator]) -> None:
    case = convnet()
    operator = kind(case.model, case.loss_fn, case.batches)
    apart = operator.product(V)
    assert apart.forms is not None
    alone = operator.product(V, by_batch=False)
    assert alone.forms is None
    torch.testing.assert_close(alone.vector, apart.vector, rtol=1e-11, atol=1e-13)
    rows = torch.stack([V, -2 * V])
    for found, factor in zip(operator.products(rows, by_batch=False), (1, -2), strict=True):
        torch.testing.assert_close(found.vector, factor * apart.vector, rtol=1e-11, atol=1e-13)
    assert torch.equal(operator @ V, alone.vector)
    assert torch.equal(operator.to_dense() @ V, operator.to_dense() @ V)


def test_one_pass_is_of_all_samples_together_and_its_graphs_are_the_only_ones_kept() -> None:
    case = convnet()
    sizes = seen(case)
    operator = Hessian(case.model, case.loss_fn, case.batches)
    operator.matvec(V)
    sizes.clear()
    operator.matvec(V)
    assert sizes == []  # it is kept
    operator.product(V)
    assert sizes == [8, 8, 8, 2]  # those of the batches were not
    sizes.clear()
    operator.matvec(V)
    assert sizes == [26]


def test_the_density_takes_them() -> None:
    case = mlp()
    found = spectral_density(case.operator, probes=1, steps=4)
    sizes = seen(case)
    operator = Hessian(case.model, case.loss_fn, case.batches)
    again = spectral_density(operator, probes=1, steps=4)
    assert sizes[-1] == sum(case.batches.sizes)
    torch.testing.assert_close(again.nodes, found.nodes)


@pytest.mark.parametrize(
    "made_of",
    [
        lambda H: H.damped(0.3),
        lambda H: 2 * H - H.damped(1.0),
        lambda H: Preconditioned(H, torch.linspace(0.5, 2, 81, dtype=torch.float64)),
        lambda H: Remainder(H, torch.eye(81, dtype=torch.float64)[:3]),
    ],
    ids=["damped", "sum", "preconditioned", "remainder"],
)
def test_operators_made_of_one_take_them_too(made_of: Callable[[Operator], Operator]) -> None:
    case = convnet()
    sizes = seen(case)
    operator = made_of(Hessian(case.model, case.loss_fn, case.batches))
    expected = operator.product(V).vector
    found = operator.matvec(V)
    assert sizes[-1] == 26
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_clients_are_compared_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    case = convnet()
    sizes = seen(case)

    def compared() -> CrossClient:
        clients = [Hessian(case.model, case.loss_fn, case.batches) for _ in range(2)]
        return cross_client(clients, probes=8, groups=4, sample_probes=0)

    found = compared()
    assert 26 in sizes
    monkeypatch.setattr(graph_cache, "_JOINED", 0)
    apart = compared()
    torch.testing.assert_close(
        torch.tensor([one.value for one in found.squared_norms["parameter"]]),
        torch.tensor([one.value for one in apart.squared_norms["parameter"]]),
    )


def test_a_diagonal_without_them_has_an_error_over_the_samples() -> None:
    operator = convnet().operator
    apart = deflated_diagonal(operator, probes=8, seed=0)
    alone = deflated_diagonal(operator, probes=8, seed=0, by_batch=False)
    torch.testing.assert_close(alone.parameter, apart.parameter, rtol=1e-10, atol=1e-12)
    assert math.isfinite(apart.trace.stderr_data)
    assert math.isnan(alone.trace.stderr_data)


def batch_sum(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss between the samples of a batch."""
    return (nn.functional.cross_entropy(outputs, targets, reduction="none").square().mean()).sqrt()


@pytest.mark.parametrize(
    ("loss_fn", "settings"),
    [
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64)), {}),
        (batch_sum, {}),
        (nn.functional.cross_entropy, {"products": "finite-differences"}),
    ],
    ids=["weighted", "between samples", "differences"],
)
def test_they_stay_apart_where_together_they_were_another_function(
    loss_fn: nn.Module, settings: dict[str, object]
) -> None:
    case = convnet()
    operator = Hessian(case.model, loss_fn, case.batches, **settings)  # type: ignore[arg-type]
    assert torch.equal(operator.matvec(V), operator.product(V).vector)


@pytest.mark.parametrize("bound", ["_JOINED", "_COPIED"])
def test_large_graphs_and_large_data_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(graph_cache, bound, 1000)
    case = convnet()
    sizes = seen(case)
    Hessian(case.model, case.loss_fn, case.batches).matvec(V)
    assert max(sizes) == 8


def test_little_memory_keeps_them_apart() -> None:
    case = convnet()
    size = Hessian(case.model, case.loss_fn, case.batches).plan.size
    sizes = seen(case)
    operator = Hessian(case.model, case.loss_fn, case.batches, memory=int(1.2 * size))
    assert operator.plan.microbatch == 8
    assert torch.equal(operator.matvec(V), operator.product(V).vector)
    assert max(sizes) == 8


def test_what_is_read_in_every_pass_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscope.landscape.loss.streamed.HELD", 0)
    case = convnet()
    inputs, targets = (torch.cat([pair[side] for pair in case.batches]) for side in (0, 1))
    operator = Hessian(case.model, case.loss_fn, TensorDataset(inputs, targets))
    assert operator.loss.batches.is_streamed
    assert torch.equal(operator.matvec(V), operator.product(V).vector)


def test_as_many_as_fit_the_bound_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    case = convnet()
    each = Hessian(case.model, case.loss_fn, case.batches).plan.size / 8
    monkeypatch.setattr(graph_cache, "_JOINED", int(17 * each))
    sizes = seen(case)
    operator = Hessian(case.model, case.loss_fn, case.batches)
    found = operator.matvec(V)
    assert sizes[-2:] == [16, 10]
    torch.testing.assert_close(found, operator.product(V).vector, rtol=1e-11, atol=1e-13)


def test_a_density_that_was_interrupted_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = spectral_density(convnet().operator, probes=2, steps=5)
    spectral_density(Journaled(convnet().operator, tmp_path), probes=1, steps=5)
    journal = Journaled(convnet().operator, tmp_path)
    journal.product(V)  # the same vector told apart is a file of its own
    again = spectral_density(journal, probes=2, steps=5)
    assert journal.found == 5
    assert torch.equal(again.nodes, whole.nodes)
    assert torch.equal(journal.matvec(V), convnet().operator.matvec(V))
    assert not torch.equal(journal.matvec(V), journal.product(V).vector)
