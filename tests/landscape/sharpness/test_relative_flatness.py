import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.landscape.operators.basis import basis_rows
from fedscope.landscape.sharpness.relative_flatness import (
    check_rows,
    largest_relative_flatness,
    last_linear,
    relative_flatness,
)
from tests import tiers
from tests.landscape.sharpness.cases import labelled, relu_net, whole


def dense(net: nn.Module, batches: Batches, name: str) -> tuple[Tensor, Tensor]:
    """The rows W (d, m) and the Hessian as (d, m, d, m)."""
    x, y = whole(batches)
    for p in net.parameters():
        p.requires_grad_(False)
    own = dict(net.named_parameters())[name].detach()

    def loss(w: Tensor) -> Tensor:
        return cross_entropy(functional_call(net, {name: w}, (x,)), y)

    matrix: Tensor = hessian(loss)(own)
    for p in net.parameters():
        p.requires_grad_(True)
    rows = own.reshape(len(own), -1)
    return rows, matrix.reshape(*rows.shape, *rows.shape)


def traced(rows: Tensor, blocks: Tensor) -> float:
    """Σ ⟨w_s, w_s'⟩ tr H_{s,s'}, pair by pair."""
    d = len(rows)
    return sum(
        float(rows[s] @ rows[t]) * float(blocks[s, :, t, :].trace()) for s in range(d) for t in range(d)
    )


@pytest.mark.parametrize("name", ["4.weight", "2.weight", "0.weight"])
def test_many_probes_give_the_sum_over_pairs_of_rows(name: str) -> None:
    net, batches = relu_net(), labelled()
    expected = traced(*dense(net, batches, name))
    op = Hessian(net, cross_entropy, batches, parameters=[name])
    found = relative_flatness(op, rtol=1e-8, seed=1)  # the Krylov basis grows to the whole space: exact
    assert found.value == pytest.approx(expected, rel=1e-6)
    few = relative_flatness(op, probes=40, seed=2)
    low, high = few.interval()
    assert low < expected < high
    assert few.cost.products == 40
    assert few.stderr_data > 0


def test_of_the_last_layer_it_is_the_form_of_the_logits_hessian() -> None:
    """Σ_i ‖φ_i‖² tr G(diag p − ppᵀ)/N for cross-entropy, from features and outputs alone."""
    net, batches = relu_net(), labelled()
    x, _ = whole(batches)
    rows = dict(net.named_parameters())[last_linear(net)].detach()
    features = net[:-1](x).detach()
    p, gram = net(x).detach().softmax(1), rows @ rows.T
    parts = features.square().sum(1) * (
        (p * gram.diagonal()).sum(1) - torch.einsum("ns,st,nt->n", p, gram, p)
    )
    op = Hessian(net, cross_entropy, batches, parameters=[last_linear(net)])
    found = relative_flatness(op, rtol=1e-8)
    assert found.value == pytest.approx(float(parts.mean()), rel=1e-6)
    spread = torch.stack([b.mean() for b in parts.split(8)]).std() / 3**0.5
    assert found.stderr_data == pytest.approx(float(spread), rel=0.5)


def test_of_a_convolution_rows_are_its_filters() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)).double()
    g = torch.Generator().manual_seed(2)
    batches = Batches(torch.randn(6, 2, 3, 3, generator=g, dtype=torch.float64), torch.arange(6) % 3, 3)
    expected = traced(*dense(net, batches, "0.weight"))
    found = relative_flatness(Hessian(net, cross_entropy, batches, parameters=["0.weight"]), rtol=1e-8)
    assert found.value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["4.weight", "2.weight"])
def test_the_largest_is_the_sum_of_the_rows_largest_eigenvalues(name: str) -> None:
    net, batches = relu_net(), labelled()
    rows, blocks = dense(net, batches, name)
    expected = sum(
        float(row @ row) * float(torch.linalg.eigvalsh(blocks[s, :, s, :])[-1]) for s, row in enumerate(rows)
    )
    found = largest_relative_flatness(Hessian(net, cross_entropy, batches, parameters=[name]), tol=1e-9)
    assert found.value == pytest.approx(expected, rel=1e-6)
    assert sum(found.batches) / 3 == pytest.approx(expected, rel=1e-6)
    assert found.stderr_draws == 0


def test_one_batch_has_no_parts() -> None:
    found = largest_relative_flatness(
        Hessian(relu_net(), cross_entropy, Batches(*whole(labelled()), 1000), parameters=["2.weight"])
    )
    assert found.batches == ()
    assert math.isnan(found.stderr_data)


def test_other_tensors_are_refused() -> None:
    net, batches = relu_net(norm=True), labelled()
    for names in (["1.weight"], ["0.weight", "3.weight"]):
        with pytest.raises(UserError, match="of the weights of one layer"):
            relative_flatness(Hessian(net, cross_entropy, batches, parameters=names))
    assert last_linear(net) == "5.weight"
    with pytest.raises(UserError, match="no linear layer"):
        last_linear(nn.Sequential(nn.Conv2d(1, 1, 1)))


@pytest.mark.drawn
def test_its_interval_covers() -> None:
    draws = tiers.draws()
    net, batches = relu_net(), labelled(8, 4)
    op, hits = Hessian(net, cross_entropy, batches, parameters=["2.weight"]), 0
    expected = traced(*dense(net, batches, "2.weight"))
    for seed in range(draws):
        low, high = relative_flatness(op, probes=8, seed=seed).interval()
        hits += low <= expected <= high
    assert tiers.nominal(hits, draws)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.block, self.head = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.block(self.emb(tokens)))  # type: ignore[no-any-return]


def test_weights_of_two_layers_are_no_last_layer() -> None:
    with pytest.raises(UserError, match=r"head\.weight and emb\.weight are one tensor"):
        last_linear(Tied())


def test_a_large_layer_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    net, batches = relu_net(), labelled()
    expected = traced(*dense(net, batches, "2.weight"))
    monkeypatch.setattr(basis_rows, "WHOLE", 4)
    op = Hessian(net, cross_entropy, batches, parameters=["2.weight"])
    assert relative_flatness(op, rtol=1e-8, seed=1).value == pytest.approx(expected, rel=1e-6)


def test_rows_that_are_inputs_are_refused() -> None:
    model = nn.ModuleDict(
        {"up": nn.ConvTranspose2d(2, 3, 2), "emb": nn.Embedding(4, 5), "out": nn.Linear(3, 2)}
    )
    check_rows(model, ["out.weight"])
    for name, kind in (("up.weight", "ConvTranspose2d"), ("emb.weight", "Embedding")):
        with pytest.raises(UserError, match=f"{name} is of {kind}, which stores its inputs first"):
            check_rows(model, [name])


def test_it_takes_products_alone() -> None:
    model = relu_net()
    op = Hessian(model, cross_entropy, labelled(), parameters=[last_linear(model)])
    cost = relative_flatness(op, probes=3).cost
    assert (cost.forwards, cost.gradients, cost.products > 0) == (0, 0, True)
