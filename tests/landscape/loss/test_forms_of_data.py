"""One data set in many forms: the same samples, the same Hessian, and what is told of a loader."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from fedscope import Batches, Hessian, client_gradient_noise
from fedscope.errors import UserError
from tests.landscape.loss.test_streamed import INPUTS, LABELS, Flow, _model

FORMS: dict[str, Any] = {
    "arrays": (INPUTS.numpy(), LABELS.numpy()),
    "columns": (INPUTS, LABELS[:, None]),
    "int32": (INPUTS, LABELS.int()),
    "bytes": (INPUTS, LABELS.byte()[:, None]),
    "numbers": (INPUTS, LABELS, torch.arange(70)),
    "data set": TensorDataset(INPUTS, LABELS[:, None].int()),
    "numbered data set": TensorDataset(INPUTS, LABELS, torch.arange(70)),
    "samples": [(row, int(label)) for row, label in zip(INPUTS, LABELS, strict=True)],
    "loader": DataLoader(TensorDataset(INPUTS, LABELS[:, None]), 16, shuffle=True, drop_last=True),
    "stream": Flow(),
    "loader of a stream": DataLoader(Flow(), 16, drop_last=True),
    "batches": [(INPUTS[:50], LABELS[:50, None]), (INPUTS[50:], LABELS[50:, None])],
    "divided": [DataLoader(TensorDataset(INPUTS[:9], LABELS[:9]), 4), (INPUTS[9:], LABELS[9:])],
}


@pytest.mark.parametrize("form", FORMS)
def test_one_data_set_has_one_hessian_in_whatever_form(form: str) -> None:
    model = _model()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    v = torch.ones_like(weights)
    H = Hessian(model, cross_entropy, FORMS[form])
    assert H.loss.batches.samples == 70
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(w: Tensor) -> Tensor:
        parts = w.split([shape.numel() for shape in shapes.values()])
        own = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        return cross_entropy(torch.func.functional_call(model, own, (INPUTS,)), LABELS)

    expected = torch.func.hessian(loss)(weights) @ v
    assert torch.allclose(H @ v, expected, rtol=1e-4, atol=1e-6)


def test_targets_of_a_loss_of_ones_own_stay_as_they_are() -> None:
    seen = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append((targets.dtype, targets.ndim))
        return cross_entropy(outputs, targets[:, 0].long())

    Hessian(_model(), loss, (INPUTS, LABELS[:, None].int())).matvec(torch.ones(44))
    assert set(seen) == {(torch.int32, 2)}
    value = Batches.of((INPUTS, INPUTS[:, :1]), loss=nn.MSELoss())
    assert value[0][1].shape == (70, 1)


def test_what_is_told_stays_with_the_batches_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    batches = Batches.of(FORMS["loader"])
    assert len(caplog.records) == len(batches.notes) == 1
    assert "leave out 6 of 70 rows" in caplog.text
    others = (batches.dealt(6), batches.taken([torch.arange(9)]), batches.to("cpu", torch.float64))
    assert all(other.notes == batches.notes for other in others)
    Hessian(_model(), cross_entropy, batches)
    assert len(caplog.records) == 1
    assert Batches.of(FORMS["loader"], quiet=True).notes
    assert len(caplog.records) == 1


def test_an_empty_batch_or_client_is_named_by_its_number() -> None:
    parts = [(INPUTS[:9], LABELS[:9]), (INPUTS[:0], LABELS[:0])]
    with pytest.raises(UserError, match="batch 1 is empty"):
        Batches.of(parts)
    with pytest.raises(UserError, match="data set 1 is empty"):
        Batches.of([TensorDataset(*part) for part in parts])
    with pytest.raises(UserError, match=r"client 1: .* is empty"):
        client_gradient_noise(_model(), cross_entropy, parts)
