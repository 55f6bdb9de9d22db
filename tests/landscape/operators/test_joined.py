"""Where no batch is told apart, small batches are taken together: the same products, from fewer graphs."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from fedscope.errors import UserError
from fedscope.landscape import (
    Batches,
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
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.basis.krylov_basis import Remainder
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.product_cache import Journaled
from fedscope.landscape.operators.products import graph_cache
from tests.landscape.cases import Case, convnet, mlp

KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher, MonteCarloFisher]
V = torch.randn(81, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def seen(case: Case) -> list[int]:
    """The samples of each forward pass from now on."""
    sizes: list[int] = []
    case.model.register_forward_hook(lambda _module, args, _output: sizes.append(len(args[0])))
    return sizes


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by an entry with each graph that a Hessian's product is made with: four a product, or one."""
    used: list[int] = []
    times = Hessian._times

    def counted(self: Hessian, graph: tuple[Tensor, ...], v: Tensor) -> Tensor:
        used.append(len(graph))
        return times(self, graph, v)

    monkeypatch.setattr(Hessian, "_times", counted)
    return used


def ready(case: Case) -> Hessian:
    """The Hessian of a case, once it has seen that small batches can be joined."""
    operator = Hessian(case.model, case.loss_fn, case.batches)
    assert operator._joined is not None
    return operator


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
    torch.testing.assert_close(operator.to_dense() @ V, apart.vector, rtol=1e-10, atol=1e-12)
    with pytest.raises(UserError, match="onto is about batches"):
        operator.product(V, onto=rows, by_batch=False)


def test_one_pass_is_of_all_samples_together_and_its_graphs_are_the_only_ones_kept() -> None:
    case = convnet()
    sizes = seen(case)
    operator = ready(case)
    sizes.clear()
    operator.matvec(V)
    assert sizes == []  # it is kept
    operator.product(V)
    assert sizes == [8, 8, 8, 2]  # those of the batches were not
    sizes.clear()
    operator.matvec(V)
    assert sizes == [26]
    assert operator.fingerprint
    sizes.clear()
    operator.matvec(V)
    assert sizes == [26]  # nor that of the first batch beside it


def test_a_single_batch_costs_a_single_product(graphs: list[int]) -> None:
    case = convnet()
    (whole,) = Batches.of(case.batches).taken([torch.arange(26)])
    operator = Hessian(case.model, case.loss_fn, [whole])
    assert operator.plan.graphs == 1
    graphs.clear()
    operator.matvec(V)
    assert len(graphs) == 1
    assert operator._joined is None


def test_the_density_takes_them(graphs: list[int]) -> None:
    operator = ready(mlp())
    graphs.clear()
    spectral_density(operator, probes=1, steps=4)
    assert len(graphs) == 4


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
def test_operators_made_of_one_take_them_too(
    graphs: list[int], made_of: Callable[[Operator], Operator]
) -> None:
    base = ready(convnet())
    operator = made_of(base)
    expected = operator.product(V).vector
    graphs.clear()
    found = operator.matvec(V)
    assert len(graphs) == 1
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_clients_are_compared_with_them(graphs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def compared() -> CrossClient:
        clients = [Hessian(case.model, case.loss_fn, case.batches) for case in (convnet(), convnet())]
        assert [client._joined is not None for client in clients] == 2 * [expected]
        graphs.clear()
        return cross_client(clients, probes=8, groups=4, sample_probes=0)

    expected = True
    found, together = compared(), len(graphs)
    monkeypatch.setattr(graph_cache, "_JOINED", 0)
    expected = False
    apart = compared()
    assert len(graphs) - 2 == 4 * together  # one each is compared with its samples' forms
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


class UpToEight(nn.Module):
    """Takes at most eight samples."""

    def __init__(self) -> None:
        super().__init__()
        self.net = convnet().model
        self.register_buffer("shift", torch.linspace(0, 1, 8, dtype=torch.float64)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.net(x) + self.get_buffer("shift")[: len(x)]
        return output


def at_zero() -> nn.Module:
    """A net whose head is 0: every sample has the same loss, and its own curvature."""
    model = convnet().model
    for tensor in model.get_submodule("5").parameters():
        nn.init.zeros_(tensor)
    return model


def between(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss between the samples of a batch."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none").square().mean().sqrt()


WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0, 0.1], dtype=torch.float64))
PLAIN = nn.functional.cross_entropy


@pytest.mark.parametrize(
    ("model", "loss_fn", "kind"),
    [
        *((lambda: convnet().model, WEIGHTED, kind) for kind in KINDS[:3]),
        *((at_zero, WEIGHTED, kind) for kind in KINDS[:3]),
        *((UpToEight, PLAIN, kind) for kind in KINDS[:2]),
        *((lambda: convnet().model, between, kind) for kind in KINDS[:2]),
    ],
)
def test_they_stay_apart_where_together_they_were_another_function(
    model: Callable[[], nn.Module], loss_fn: LossFunction, kind: type[LossOperator]
) -> None:
    batches = sorted(convnet().batches, key=lambda pair: float(pair[1].sum()))
    operator = kind(model(), loss_fn, batches)
    assert torch.equal(operator.matvec(V), operator.product(V).vector)
    assert operator._joined is None


def test_finite_differences_are_of_batches() -> None:
    case = convnet()
    operator = Hessian(case.model, case.loss_fn, case.batches, products="finite-differences")
    assert torch.equal(operator.matvec(V), operator.product(V).vector)


@pytest.mark.parametrize("bound", ["_JOINED", "_COPIED"])
def test_large_graphs_and_large_data_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(graph_cache, bound, 1000)
    case = convnet()
    sizes = seen(case)
    operator = Hessian(case.model, case.loss_fn, case.batches)
    assert torch.equal(operator.matvec(V), operator.product(V).vector)
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
