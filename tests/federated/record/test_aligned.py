"""Batch normalisation of tensors that do not begin at 16 bytes goes past cuDNN, and nothing else does."""

import pytest
import torch
from torch import nn

from fedscope.federated.record.flat import FlatModel, normalise_where_it_lies
from fedscope.models.catalogue import build


def used(module: nn.Module, inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[bool]]:
    """Return whether cuDNN was on in the normalisations and the convolutions of a forward pass."""
    seen: dict[str, set[bool]] = {"batch_norm": set(), "conv2d": set()}
    functions = {"batch_norm": nn.functional.batch_norm, "conv2d": nn.functional.conv2d}
    for name, function in functions.items():

        def noted(*given: object, name: str = name, function: object = function, **more: object) -> object:
            seen[name].add(torch.backends.cudnn.enabled)
            return function(*given, **more)  # type: ignore[operator]

        monkeypatch.setattr(nn.functional, name, noted)
    module(inputs)
    return seen


@pytest.mark.parametrize(("classes", "cudnn"), [(10, False), (100, True)])
def test_what_is_not_aligned_goes_past_cudnn(
    classes: int, cudnn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head of ten outputs leaves the running statistics after it at eight bytes."""
    flat = FlatModel(build("resnet20", classes, 3, torch.Generator().manual_seed(0)))
    assert bool(flat.size % 4) is not cudnn
    normalise_where_it_lies(flat.module)
    inputs = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert used(flat.module, inputs, monkeypatch) == {"batch_norm": {cudnn}, "conv2d": {True}}
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize("enabled", [True, False])
def test_cudnn_is_as_it_was_after_a_failure(enabled: bool) -> None:
    flat = FlatModel(build("resnet20", 10, 3, torch.Generator().manual_seed(0)))
    normalise_where_it_lies(flat.module)
    norm = next(part for part in flat.module.modules() if isinstance(part, nn.BatchNorm2d))
    with torch.backends.cudnn.flags(enabled=enabled):
        with pytest.raises(RuntimeError):
            norm(torch.zeros(2, 3, 4, 4))  # of other channels
        assert torch.backends.cudnn.enabled is enabled
