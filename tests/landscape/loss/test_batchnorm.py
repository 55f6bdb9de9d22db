import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, frozen_copy
from fedscope.landscape.loss.batchnorm import never_run
from tests.landscape.cases import convnet


def _bn(model: nn.Module) -> nn.BatchNorm2d:
    (layer,) = (module for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    return layer


def test_eval_keeps_the_stored_statistics_and_silences_dropout() -> None:
    case = convnet()
    frozen = frozen_copy(case.model, batches=case.batches)
    assert torch.equal(frozen(case.inputs), frozen(case.inputs))
    assert torch.equal(frozen(case.inputs), case.model.eval()(case.inputs))
    assert not any(p.requires_grad for p in frozen.parameters())


def test_recalibrate_gives_the_sample_weighted_mean_of_the_batch_statistics() -> None:
    case = convnet()
    layer = _bn(frozen_copy(case.model, bn="recalibrate", batches=case.batches))
    conv = case.model[0]  # type: ignore[index]
    means, variances = [], []
    for inputs, _ in case.batches:
        seen = conv(inputs).transpose(0, 1).flatten(1)
        means.append(len(inputs) * seen.mean(1))
        variances.append(len(inputs) * seen.var(1))
    torch.testing.assert_close(layer.running_mean, sum(means) / case.batches.samples)
    torch.testing.assert_close(layer.running_var, sum(variances) / case.batches.samples)
    assert not layer.training
    assert layer.momentum == 0.1


class _Twice(nn.Module):
    """One BatchNorm at two places of a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn, self.other = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(x + 1)
        found: Tensor = self.other(self.bn(torch.tanh(self.linear(x))))
        return found


@pytest.mark.parametrize("batch_size", [6, 12, 24])
def test_recalibrate_is_pytorchs_update_bn_for_equal_batches(batch_size: int) -> None:
    torch.manual_seed(0)
    model, batches = _Twice(), Batches(torch.randn(24, 3), torch.zeros(24), batch_size)
    frozen = frozen_copy(model, bn="recalibrate", batches=batches)
    torch.optim.swa_utils.update_bn(batches, model)
    for name, theirs in model.named_buffers():
        assert torch.equal(frozen.get_buffer(name), theirs), name
    assert not frozen.bn._forward_pre_hooks  # type: ignore[union-attr]


def test_a_layer_used_twice_weights_its_calls_by_their_samples() -> None:
    torch.manual_seed(0)
    model, batches = _Twice().double(), Batches(torch.randn(10, 3).double(), torch.zeros(10), 7)
    frozen = frozen_copy(model, bn="recalibrate", batches=batches)
    means, seen = torch.zeros(3, dtype=torch.float64), 0
    model.bn.register_forward_pre_hook(lambda _, args: calls.append(args[0]))
    for inputs, _ in batches:
        calls: list[Tensor] = []
        model.train()(inputs)
        means += sum(len(inputs) * call.mean(0) for call in calls)
        seen += len(inputs) * len(calls)
    assert seen == 20
    torch.testing.assert_close(frozen.get_buffer("bn.running_mean"), means / seen)


def test_recalibrate_names_a_batch_that_is_too_small() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UserError, match="batch of 1"):
        frozen_copy(model, bn="recalibrate", batches=Batches(torch.ones(5, 2), torch.ones(5), 4))


def test_batch_uses_the_batch_and_touches_no_buffer() -> None:
    case = convnet()
    whole = Batches(case.inputs, case.targets, batch_size=26)
    frozen = frozen_copy(case.model, bn="batch", batches=whole)
    reference = frozen_copy(case.model, batches=whole)
    _bn(reference).train()
    torch.testing.assert_close(frozen(case.inputs), reference(case.inputs))
    assert _bn(frozen).running_mean is None


def test_batch_statistics_over_several_batches_are_refused() -> None:
    case = convnet()
    with pytest.raises(UserError, match="one batch"):
        frozen_copy(case.model, bn="batch", batches=case.batches)
    stateless = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False)).double()
    with pytest.raises(UserError, match="one batch"):
        frozen_copy(stateless, bn="eval", batches=case.batches)


def test_layers_without_statistics_have_none_that_never_saw_a_sample() -> None:
    assert never_run(nn.BatchNorm1d(3)).startswith("BatchNorm never saw a sample")
    assert never_run(nn.BatchNorm1d(3, track_running_stats=False)) == ""


def test_an_unknown_mode_is_refused() -> None:
    case = convnet()
    with pytest.raises(UserError, match="recalibrate"):
        frozen_copy(case.model, bn="train", batches=case.batches)  # type: ignore[arg-type]


@pytest.mark.parametrize("bn", ["eval", "recalibrate", "batch"])
def test_the_callers_model_is_left_as_it_was(bn: str) -> None:
    case = convnet()
    batches = Batches(case.inputs, case.targets, batch_size=26)
    calls: list[int] = []
    handle = case.model.register_forward_hook(lambda *_: calls.append(1))
    case.model(case.inputs).sum().backward()
    before = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    gradients = [p.grad for p in case.model.parameters()]
    hooks = dict(case.model._forward_hooks)
    operator = Hessian(case.model, case.loss_fn, batches, bn=bn)  # type: ignore[arg-type]
    operator.matvec(torch.ones(operator.shape[0]))
    assert all(module.training for module in case.model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in case.model.state_dict().items())
    assert [p.grad for p in case.model.parameters()] == gradients
    assert dict(case.model._forward_hooks) == hooks
    assert all(p.requires_grad for p in case.model.parameters())
    handle.remove()


def test_recalibrated_curvature_is_that_of_a_model_with_these_statistics() -> None:
    case = convnet()
    v = torch.randn(81, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    recalibrated = Hessian(case.model, case.loss_fn, case.batches, bn="recalibrate").matvec(v)
    _bn(case.model).load_state_dict(
        _bn(frozen_copy(case.model, bn="recalibrate", batches=case.batches)).state_dict()
    )
    torch.testing.assert_close(recalibrated, case.operator.matvec(v))
