"""Products beside their definition: false derivatives are named, honest networks are left alone."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax
from torch.nn.utils.parametrizations import orthogonal

from fedscope.errors import DerivativeWarning, UserError
from fedscope.landscape import EmpiricalFisher, GaussNewton, Hessian, MonteCarloFisher, top_eigenpairs
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.operators.basis.row_space import PIECE
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.products.definition import _typical, compared, of_gradients, product_of

KINDS: tuple[type[LossOperator], ...] = (Hessian, GaussNewton, EmpiricalFisher, MonteCarloFisher)


class Kept(torch.autograd.Function):
    """1/(1 + x²), whose backward takes the output's square from its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        bell = 1 / (1 + x**2)
        ctx.save_for_backward(x, bell**2)
        return bell

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, square = ctx.saved_tensors
        slope: Tensor = -2 * x * square
        return gradients[0] * slope


class Right(Kept):
    """The same, whose backward says all that it depends on."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        slope: Tensor = -2 * x / (1 + x**2) ** 2
        return gradients[0] * slope


class Outside(torch.autograd.Function):
    """atan, whose backward is computed in NumPy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.atan()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        slope = 1 / (1 + ctx.saved_tensors[0].detach().numpy() ** 2)
        return torch.from_numpy(gradients[0].detach().numpy() * slope)


class KeptLoss(torch.autograd.Function):
    """The mean cross-entropy, whose backward keeps the probabilities."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, labels: Tensor) -> Tensor:
        own = nn.functional.one_hot(labels, outputs.shape[1])
        ctx.save_for_backward(outputs.softmax(1) - own)
        return -(log_softmax(outputs, 1) * own).sum() / len(labels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (off,) = ctx.saved_tensors
        return gradients[0] * off / len(off), None


class Reversed(torch.autograd.Function):
    """The identity, whose gradient is turned round, as in adversarial adaptation to domains."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -0.5 * gradients[0]


class Straight(torch.autograd.Function):
    """Rounding to halves, passed over in the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (2 * x).round() / 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Step(nn.Module):
    """A function between layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def frozen_in_forward(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.sin()


def scaled_by_a_hook(x: Tensor) -> Tensor:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda gradient: 3 * gradient)
    return y


def stack(*steps: nn.Module | Callable[[Tensor], Tensor]) -> nn.Sequential:
    """Linear layers with steps between and after them."""
    torch.manual_seed(0)
    inner, *after = (step if isinstance(step, nn.Module) else Step(step) for step in steps)
    return nn.Sequential(nn.Linear(4, 6), inner, nn.Linear(6, 3), *after)


def words(**options: Any) -> nn.Module:
    """An embedding's mean, and a linear layer."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 5, **options), Step(lambda x: x.tanh().mean(1)), nn.Linear(5, 3))
    with torch.no_grad():
        net[0].weight.normal_()  # type: ignore[operator]
    return net


def rows(count: int = 30) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    return torch.randn(count, 4, generator=draw), torch.randint(3, (count,), generator=draw)


def sentences(count: int = 30) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(6)
    return torch.randint(9, (count, 7), generator=draw), torch.randint(3, (count,), generator=draw)


def focal(outputs: Tensor, labels: Tensor) -> Tensor:
    """The focal loss with its weight held constant."""
    each = cross_entropy(outputs, labels, reduction="none")
    return ((1 - (-each).exp().detach()).square() * each).mean()


def product(operator: LossOperator) -> Tensor:
    return operator @ torch.ones(operator.shape[0], dtype=operator.dtype)


WRONG: dict[str, tuple[Callable[[], nn.Module], LossFunction, tuple[type[LossOperator], ...], str]] = {
    "kept": (lambda: stack(Kept.apply), cross_entropy, KINDS[:1], "Kept in module '1'"),
    "kept, last": (lambda: stack(nn.Tanh(), Kept.apply), cross_entropy, KINDS[:1], "Kept in module '3'"),
    "kept in the loss": (lambda: stack(nn.Tanh()), KeptLoss.apply, KINDS[:2], "KeptLoss in the loss"),
    "outside, in the middle": (lambda: stack(Outside.apply), cross_entropy, KINDS, "Outside in module '1'"),
    "outside, last": (lambda: stack(nn.Tanh(), Outside.apply), cross_entropy, KINDS, "Outside in module '3'"),
    "beside an honest one": (
        lambda: stack(nn.Sequential(Step(Kept.apply), Step(torch.sin))),
        cross_entropy, KINDS[:1], "Kept in module '1.0'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, (_, _, kinds, _) in WRONG.items() for kind in kinds]
)
def test_a_wrong_second_derivative_is_refused_by_name(
    name: str, kind: type[LossOperator], dtype: torch.dtype
) -> None:
    model, loss_fn, _, place = WRONG[name]
    x, y = rows()
    with pytest.raises(UserError, match=f"second derivative is wrong: {place}") as refused:
        product(kind(model().to(dtype), loss_fn, (x.to(dtype), y)))
    assert ("--products finite-differences" in str(refused.value)) == (kind is Hessian)


def test_a_right_function_is_not_named_beside_a_wrong_one() -> None:
    both = nn.Sequential(Step(Right.apply), Step(Kept.apply))
    with pytest.raises(UserError, match=r"Kept in module '1.1': ") as refused:
        product(Hessian(stack(both), cross_entropy, rows()))
    assert "Right" not in str(refused.value)
    assert product(Hessian(stack(Right.apply), cross_entropy, rows())).isfinite().all()


def test_it_is_also_refused_in_a_network_and_a_loss_that_run_in_float32_alone() -> None:
    x, y = rows()
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    assert product(Hessian(stack(nn.Tanh()), loss, (x, y))).isfinite().all()
    with pytest.raises(UserError, match="Kept in module '1'"):
        product(Hessian(stack(Kept.apply), loss, (x, y)))


def test_what_is_refused_is_measured_by_differences() -> None:
    x, y = rows()
    model = stack(Kept.apply).double()
    plain = stack(lambda z: 1 / (1 + z**2)).double()
    found = Hessian(model, cross_entropy, (x.double(), y), products="finite-differences")
    assert torch.allclose(product(found), product(Hessian(plain, cross_entropy, (x.double(), y))), atol=1e-7)
    assert found.departs == ""


NOT_ITS_OWN: dict[str, tuple[Callable[[], nn.Module], LossFunction, Callable[[], Any], str]] = {
    "reversal": (lambda: stack(Reversed.apply), cross_entropy, rows, "Reversed in module '1'"),
    "straight-through": (lambda: stack(Straight.apply), cross_entropy, rows, "Straight in module '1'"),
    "fake quantisation": (
        lambda: stack(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -99, 99)),
        cross_entropy, rows, "module '1'",
    ),
    "detached": (lambda: stack(lambda x: x * x.sigmoid().detach()), cross_entropy, rows, "module '1'"),
    "no_grad": (lambda: stack(frozen_in_forward), cross_entropy, rows, "module '1'"),
    "hook": (lambda: stack(scaled_by_a_hook), cross_entropy, rows, "module '1'"),
    "in the loss": (lambda: stack(nn.Tanh()), focal, rows, ", by detach"),
    "max_norm": (lambda: words(max_norm=1.0), cross_entropy, sentences, "module '0'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [Hessian, GaussNewton, EmpiricalFisher])
@pytest.mark.parametrize("name", NOT_ITS_OWN)
def test_a_gradient_that_is_not_the_losses_is_measured_with_a_line(
    name: str, kind: type[LossOperator]
) -> None:
    model, loss_fn, data, place = NOT_ITS_OWN[name]
    operator = kind(model(), loss_fn, data())
    with pytest.warns(DerivativeWarning, match="the gradient is not that of the loss"):
        assert product(operator).isfinite().all()
    assert place in operator.departs


def test_of_finite_differences_the_gradient_is_looked_at_too() -> None:
    operator = Hessian(stack(Reversed.apply), cross_entropy, rows(), products="finite-differences")
    with pytest.warns(DerivativeWarning, match="Reversed in module '1'"):
        product(operator)


def test_a_matrix_that_is_not_symmetric_has_no_eigenvalues() -> None:
    operator = Hessian(words(scale_grad_by_freq=True), cross_entropy, sentences())
    with pytest.raises(UserError, match=r"module '0'.*not symmetric.*no eigenvalues"):
        product(operator)


def test_a_loss_that_jumps_at_the_weights_is_told() -> None:
    torch.manual_seed(0)
    layer = orthogonal(nn.Linear(4, 4, bias=False), orthogonal_map="householder")
    operator = Hessian(nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 3)), cross_entropy, rows())
    with pytest.warns(DerivativeWarning, match="jumps at these weights"):
        product(operator)


HONEST: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "kinks": (lambda: stack(nn.Sequential(nn.ReLU(), nn.Hardtanh(), nn.LeakyReLU())), rows),
    "unknown kinks": (lambda: stack(lambda x: torch.where(x > 0, x, x / 3).sort(1).values), rows),
    "float32 inside": (lambda: stack(lambda x: x.float().softmax(1).to(x.dtype)), rows),
    "half inside": (lambda: stack(lambda x: x.bfloat16().tanh().to(x.dtype)), rows),
    "scales": (lambda: stack(lambda x: 1e6 * torch.tanh(1e-6 * x)), rows),
    "padding": (lambda: words(padding_idx=0), sentences),
    "sparse gradients": (lambda: words(sparse=True), sentences),
    "norms": (lambda: stack(nn.Sequential(nn.LayerNorm(6), nn.Tanh())), rows),
    "logarithms": (lambda: stack(lambda x: x.logcumsumexp(1)), rows),
    "weights of 0": (lambda: nn.Sequential(nn.Linear(4, 3).requires_grad_(True)).apply(_zeroed), rows),
}


def _zeroed(module: nn.Module) -> None:
    for parameter in module.parameters():
        nn.init.zeros_(parameter)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HONEST)
def test_honest_networks_are_left_alone(name: str, kind: type[LossOperator]) -> None:
    model, data = HONEST[name]
    with warnings.catch_warnings(action="error", category=DerivativeWarning):
        operator = kind(model(), cross_entropy, data())
        assert product(operator).isfinite().all()
    assert operator.departs == ""


def test_the_comparison_takes_three_forward_passes_of_four_samples() -> None:
    """With a gradient at each, and one product, it is five gradients of four samples."""
    seen: list[int] = []
    model = stack(nn.Tanh())
    model[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    operator = Hessian(model, cross_entropy, rows())
    parts = operator._definition()
    seen.clear()
    assert compared(operator.loss, parts, 100, "", apart=False) == ""
    assert seen == [4, 4, 4]


def test_weights_buffers_and_precision_are_as_before() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    operator = Hessian(model, cross_entropy, rows())
    before = {name: value.clone() for name, value in operator.loss.model.state_dict().items()}
    compared(operator.loss, operator._definition(), 100, "", apart=False)
    after = operator.loss.model.state_dict()
    assert all(
        torch.equal(value, after[name]) and value.dtype == after[name].dtype for name, value in before.items()
    )
    assert operator.loss.dtype == torch.float32


def test_kinks_within_a_step_stay_where_they_are() -> None:
    x, y = rows(4)
    model = stack(nn.ReLU()).double()
    with torch.no_grad():  # every unit of the first sample lies just above its kink
        model[0].bias.copy_(1e-8 - model[0].weight @ x[0].double())  # type: ignore[operator]
    loss = FlatLoss(model, cross_entropy, (x.double(), y))
    v = torch.randn(len(loss.center), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    near = product_of(loss, of_gradients(loss), (x.double(), y), v).detach()
    exact = Hessian(model, cross_entropy, (x.double(), y)) @ v
    assert torch.allclose(near, exact, atol=1e-7)


COUPLED: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - x.mean(0),
    "batch norm": lambda x: nn.functional.batch_norm(x, None, None, training=True),
    "mask of the first": lambda x: x * (x[:1] > 0),
    "branch on a sum": lambda x: x.tanh() if x.sum() > 0 else x.sin(),
}


@pytest.mark.parametrize("kind", [EmpiricalFisher, MonteCarloFisher])
@pytest.mark.parametrize("name", COUPLED)
def test_samples_that_depend_on_each_other_have_no_gradients(name: str, kind: type[LossOperator]) -> None:
    with pytest.raises(UserError, match="depends on the others of its batch"):
        product(kind(stack(COUPLED[name]), cross_entropy, rows()))


def _forms(model: nn.Module, data: tuple[Tensor, Tensor], v: Tensor) -> Tensor:
    """vᵀH_i v of each sample, by reverse mode twice."""
    names = [name for name, _ in model.named_parameters()]
    weights = list(model.parameters())
    sizes = [p.numel() for p in weights]

    def of(x: Tensor, y: Tensor) -> Tensor:
        named: dict[str, Tensor] = dict(zip(names, weights, strict=True))
        loss = cross_entropy(functional_call(model, named, (x[None],)), y[None])
        gradients = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
        pairs = zip(gradients, v.split(sizes), strict=True)
        along = sum(((g.reshape(-1) * piece).sum() for g, piece in pairs), torch.zeros((), dtype=v.dtype))
        second = torch.autograd.grad(along, weights, materialize_grads=True)
        return torch.cat([piece.reshape(-1) for piece in second]) @ v

    return torch.stack([of(x, y) for x, y in zip(*data, strict=True)]).detach()


NORMS: dict[str, Callable[[], nn.Module]] = {
    "LayerNorm": lambda: stack(nn.LayerNorm(6)),
    "LayerNorm, plain": lambda: stack(nn.LayerNorm(6, elementwise_affine=False)),
    "InstanceNorm": lambda: stack(
        nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, affine=True), nn.Flatten(), nn.Tanh())
    ),
    "GroupNorm": lambda: stack(nn.Sequential(nn.GroupNorm(2, 6), nn.Tanh())),
}


@pytest.mark.parametrize("name", NORMS)
def test_networks_with_norms_have_their_samples_forms(name: str) -> None:
    x, y = rows(12)
    data, model = (x.double(), y), NORMS[name]().double()
    operator = Hessian(model, cross_entropy, data)
    v = torch.randn(operator.shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = operator.sample_forms(v)
    assert found is not None
    assert torch.allclose(found, _forms(model, data, v), rtol=1e-8, atol=1e-10)
    assert top_eigenpairs(operator, tol=1e-6).samples is not None


WRONG_FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "solve": lambda x: torch.linalg.solve(2 * torch.eye(6) + x[:, None] * x[:, :, None], x),
    "det": lambda x: x * torch.linalg.det(torch.eye(6) + x[:, None] * x[:, :, None])[:, None],
    "scatter": lambda x: (
        x + torch.ones(len(x), 1).scatter_reduce(1, torch.zeros(len(x), 6).long(), x, "prod")
    ),
}


@pytest.mark.parametrize("name", WRONG_FORWARD)
def test_forms_that_forward_mode_gets_wrong_are_not_given(name: str) -> None:
    operator = Hessian(stack(WRONG_FORWARD[name]), cross_entropy, rows(12))
    assert operator.sample_forms(torch.ones(operator.shape[0])) is None


def test_a_padding_row_is_constant_in_forms_and_differences_too() -> None:
    x, y = sentences(16)
    x[:, 4:] = 0
    model = words(padding_idx=0).double()
    exact = Hessian(model, cross_entropy, (x, y))
    v = torch.randn(exact.shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    near = Hessian(model, cross_entropy, (x, y), products="finite-differences").product(v)
    assert float((near.vector - exact @ v).norm()) <= near.error < 1e-6
    found = exact.sample_forms(v)
    assert found is not None
    assert torch.allclose(found, _forms(model, (x, y), v), rtol=1e-8, atol=1e-10)


def test_gauss_newton_of_a_running_logarithm_of_sums_is_that_of_its_jacobian() -> None:
    x, y = rows(8)
    model = stack(lambda z: z.logcumsumexp(1)).double()
    data = (x.double(), y)
    operator = GaussNewton(model, cross_entropy, data)
    names, weights = zip(*model.named_parameters(), strict=True)

    def outputs(*given: Tensor) -> Tensor:
        found: Tensor = functional_call(model, dict(zip(names, given, strict=True)), (data[0],))
        return found

    jacobian = torch.autograd.functional.jacobian(outputs, tuple(p.detach() for p in weights))
    J = torch.cat([part.reshape(8, 3, -1) for part in jacobian], 2)
    p = model(data[0]).softmax(1).detach()
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    dense = torch.einsum("nki,nkl,nlj->ij", J, inner, J) / 8
    assert torch.allclose(operator.to_dense(), dense, atol=1e-12)


def test_complex_weights_may_begin_anywhere() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(3))  # an odd number of them, before the pairs
            self.pairs = nn.Parameter(torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0)))

        def forward(self, x: Tensor) -> Tensor:
            return (x.to(torch.complex64) @ torch.view_as_complex(self.pairs)).abs() + self.shift

    for kind in KINDS:
        operator = kind(Complex(), cross_entropy, rows())
        assert product(operator).isfinite().all()
        assert operator.sample_forms(torch.ones(27)) is not None


class Energy(nn.Module):
    """An energy's slope by ``torch.func``, as physics-informed networks take it."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        slope = torch.func.vmap(torch.func.grad(lambda point: self.energy(point).sum()))(x)
        logits: Tensor = self.out(slope)
        return logits


class SparseMixing(nn.Module):
    """Features mixed by a sparse matrix, as on a graph."""

    mixing: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 6), nn.Linear(6, 3)
        self.register_buffer("mixing", (torch.eye(6) + torch.eye(6).roll(1, 0)).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.sparse.mm(self.mixing, self.hidden(x).tanh().T).T)
        return logits


@pytest.mark.parametrize("model", [Energy, SparseMixing, lambda: words(sparse=True)])
def test_what_double_backward_can_do_is_done(model: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    net = model()
    data = sentences() if isinstance(net, nn.Sequential) else rows()
    operator = Hessian(net, cross_entropy, data)
    if isinstance(net, nn.Sequential):
        net[0].sparse = False  # type: ignore[assignment]
    weights = list(net.parameters())
    loss = cross_entropy(net(data[0]), data[1])
    gradients = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    along = torch.cat([g.reshape(-1) for g in gradients]).sum()
    second = torch.autograd.grad(along, weights, materialize_grads=True)
    assert torch.allclose(product(operator), torch.cat([p.reshape(-1) for p in second]), atol=1e-5)


def test_the_loss_is_named_where_it_has_no_second_derivative() -> None:
    def distance(outputs: Tensor, labels: Tensor) -> Tensor:
        return torch.cdist(outputs, torch.eye(3)[labels].to(outputs), p=3).diagonal().mean()

    with pytest.raises(UserError, match=r"Cdist.* in the loss"):
        product(Hessian(stack(nn.Tanh()), distance, rows()))


def test_a_traced_branch_is_refused_with_what_to_write() -> None:
    def branch(x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, torch.tanh, torch.sin, (x,))
        return found

    with pytest.raises(UserError, match=r"torch.cond has no second derivative.* in module '1'; .*Python if"):
        product(Hessian(stack(branch), cross_entropy, rows()))


def test_the_definition_by_gradients_is_the_hessians() -> None:
    x, y = rows()
    loss = FlatLoss(stack(nn.Tanh()).double(), cross_entropy, (x.double(), y))
    values = of_gradients(loss).values((x.double(), y)).detach()
    assert torch.allclose(values[1:], loss.gradient(x.double(), y))
    assert float(values[0]) == pytest.approx(float(loss.losses[0]))


def test_the_size_of_a_typical_weight_is_a_geometric_mean() -> None:
    draw = torch.randn(3 * PIECE // 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes = draw.abs().clamp(min=1e-4 * float(draw.square().mean().sqrt()))
    assert _typical(torch.cat([draw, torch.zeros(9)])) == pytest.approx(
        float(sizes.log().mean().exp()), rel=1e-12
    )
    assert _typical(torch.tensor([-1.0, 0.0, 4.0])) == pytest.approx(2)
    assert _typical(torch.tensor([1.0, 1e-9])) == pytest.approx((1e-4 / 2**0.5) ** 0.5)
    assert _typical(torch.zeros(3)) == 1
