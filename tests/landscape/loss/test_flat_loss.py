"""Samples that are never written to, parameters by patterns, and arithmetic that is put back."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from fedscope.errors import UserError
from fedscope.landscape import (
    Batches,
    EmpiricalFisher,
    GaussNewton,
    Hessian,
    random_directions,
    surface,
    top_eigenpairs,
)
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.mean_loss import check_mean
from fedscope.landscape.loss.trees import Tree, cloned, octets
from fedscope.landscape.operators.product_cache import Journaled
from tests.landscape.cases import mlp


class Writing(nn.Module):
    """Scales its inputs in place, but only batches that are large, or lie far out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 6 or x.mean() > 5:
            x.mul_(0.5)
        logits: Tensor = self.fc(x)
        return logits


def _written_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    targets.masked_fill_(targets == 2, 0)
    return cross_entropy(outputs, targets)


def test_inputs_and_targets_are_never_written_to() -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(20, 4), torch.arange(20) % 3
    inputs[8:] += 10
    kept = inputs.clone(), targets.clone()
    model, batches = Writing(), Batches(inputs, targets, 7)
    for size in (5, 7):
        operator = Hessian(model, _written_loss, Batches(inputs, targets, size))
        first = operator.matvec(torch.ones(15))
        assert torch.equal(operator.matvec(torch.ones(15)), first)
    surface(model, _written_loss, batches, directions=random_directions(model), grid=5)
    check_mean(model, _written_loss, Batches(inputs, targets, 20))
    assert torch.equal(inputs, kept[0])
    assert torch.equal(targets, kept[1])


def test_copies_begin_at_the_same_place_of_a_line() -> None:
    numbers = torch.arange(60.0)
    for begin in range(20):
        tree: Tree = {"a": numbers[begin:], "b": (numbers[begin : begin + 6].view(2, 3), numbers[::2])}
        copy = cloned(tree)
        for ours, theirs in ((copy["a"], tree["a"]), (copy["b"][0], tree["b"][0])):
            assert torch.equal(ours, theirs)
            assert ours.data_ptr() % 64 == theirs.data_ptr() % 64
        assert torch.equal(copy["b"][1], numbers[::2])
    assert cloned(torch.empty(0, 3)).shape == (0, 3)


def test_one_pattern_is_a_pattern_and_none_at_all_is_refused() -> None:
    case = mlp()
    operator = Hessian(case.model, case.loss_fn, case.batches, parameters="0.*")
    assert operator.names == ("0.weight", "0.bias")
    with pytest.raises(UserError, match="parameters is empty"):
        Hessian(case.model, case.loss_fn, case.batches, parameters=[])


def test_bfloat16_has_fingerprints_scipy_and_products_on_disk(tmp_path: Path) -> None:
    case = mlp()
    model = case.model.bfloat16()
    operator = Hessian(model, case.loss_fn, case.batches)
    again = Hessian(model, case.loss_fn, case.batches)
    assert operator.fingerprint == again.fingerprint
    assert Batches(case.inputs.bfloat16(), case.targets).sha256 != Batches(case.inputs, case.targets).sha256
    v = torch.ones(51, dtype=torch.bfloat16)
    found = operator.to_scipy()
    assert found.dtype == "float32"
    product = torch.from_numpy(found.matvec(v.float().numpy()))
    assert torch.equal(product, operator.matvec(v).float())
    first, second = (Journaled(operator, tmp_path / "products") for _ in range(2))
    assert torch.equal(first.matvec(v), second.matvec(v))
    assert (second.found, second.matvec(v).dtype) == (1, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64])
def test_octets_are_numpys_own(dtype: torch.dtype) -> None:
    for tensor in (torch.ones(3, 2).to(dtype).T, torch.ones(()).to(dtype)):
        assert octets(tensor) == tensor.contiguous().numpy().tobytes()


class _Keeping(nn.Linear):
    """Keeps what it computed, for a user to look at."""

    kept: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.kept = super().forward(x)
        return self.kept


class _Again(nn.Linear):
    """Computes its outputs again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return found


def _old_weight_norm(inputs: int, outputs: int) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer: nn.Module = nn.utils.weight_norm(nn.Linear(inputs, outputs))
    return layer


@pytest.mark.parametrize("layer", [_Keeping, _Again, _old_weight_norm])
def test_networks_that_keep_or_recompute_have_products(
    layer: Callable[[int, int], nn.Module],
) -> None:
    case = mlp()
    model = nn.Sequential(layer(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    model(case.inputs)  # as after training
    operator = Hessian(model, case.loss_fn, case.batches)
    u, v = torch.randn(2, operator.shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(u @ operator.matvec(v), v @ operator.matvec(u))


def test_starting_vectors_do_not_cancel() -> None:
    case = mlp()
    v = torch.randn(51, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = top_eigenpairs(case.operator, tol=1e-8).values
    found = top_eigenpairs(case.operator, start=torch.stack([v, -v]), tol=1e-8)
    torch.testing.assert_close(found.values, expected, rtol=1e-6, atol=0)
    with pytest.raises(UserError, match="no vectors"):
        top_eigenpairs(case.operator, start=torch.zeros(0, 51))


@pytest.fixture
def _fast_arithmetic() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_fast_arithmetic")
def test_float32_products_are_whole_and_the_users_setting_is_put_back() -> None:
    case, seen = mlp(), []

    class Looking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32))
            return super().forward(x)

    model = nn.Sequential(Looking(4, 3)).double()
    loss = FlatLoss(model, case.loss_fn, case.batches)
    assert loss.losses.isfinite().all()
    Hessian(model, case.loss_fn, case.batches).matvec(torch.ones(15))
    assert set(seen) == {("highest", False)}
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cuda.matmul.allow_tf32


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="of newer versions")
def test_so_is_what_was_set_by_operation() -> None:
    case = mlp()
    loss = FlatLoss(case.model, case.loss_fn, case.batches)
    parts = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = [part.fp32_precision for part in parts]
    try:
        for part in parts:
            part.fp32_precision = "tf32"
        with loss.exact():
            assert [part.fp32_precision for part in parts] == ["ieee", "ieee"]
        assert [part.fp32_precision for part in parts] == ["tf32", "tf32"]
    finally:
        for part, precision in zip(parts, before, strict=True):
            part.fp32_precision = precision


def test_a_loss_of_the_original_network_s_weights_is_refused() -> None:
    model, inputs = nn.Linear(6, 3), torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(8) % 3

    def decayed(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets) + 0.05 * sum(p.square().sum() for p in model.parameters())

    data, alone = [(inputs, targets)], nn.Parameter(torch.zeros(()))
    for build in (Hessian, GaussNewton, EmpiricalFisher, FlatLoss):
        with pytest.raises(UserError, match=r"outside the network that is measured.*Weight decay"):
            build(model, decayed, data)
    with pytest.raises(UserError, match=r"parameter \(\) outside"):
        Hessian(model, lambda o, t: cross_entropy(o, t) + alone, data)
    Hessian(model, lambda o, t: cross_entropy(o, t) + alone.detach(), data)
