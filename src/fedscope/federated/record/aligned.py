"""Batch normalisation of tensors that lie anywhere in a flat vector, on a GPU.

In fp32 on an H100 training failed ("misaligned address") where a normalisation's statistics did not begin at
a multiple of 16 bytes, as after a last layer of ten outputs, and nowhere else: cuDNN's kernel seems to read
four numbers at a time. PyTorch's own kernel takes them anywhere.
"""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

BYTES = 16


def normalise_where_it_lies(module: nn.Module) -> None:
    """Let each batch normalisation with a tensor that is not aligned use PyTorch's own kernel."""
    for part in module.modules():
        if isinstance(part, _BatchNorm) and not _aligned(part):
            own = _OwnKernel()
            part.register_forward_pre_hook(own.begin)
            part.register_forward_hook(own.end, always_call=True)


def _aligned(part: _BatchNorm) -> bool:
    tensors = (part.weight, part.bias, part.running_mean, part.running_var)
    return not any(tensor is not None and tensor.data_ptr() % BYTES for tensor in tensors)


class _OwnKernel:
    """Turns cuDNN off for a forward pass, and then back to what it was."""

    before = True

    def begin(self, *_: object) -> None:
        self.before, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False

    def end(self, *_: object) -> None:
        torch.backends.cudnn.enabled = self.before
