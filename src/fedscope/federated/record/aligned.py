"""Batch normalisation of tensors that lie anywhere in a flat vector, on a GPU.

cuDNN's kernel reads scales and statistics four numbers at a time and fails on an H100 ("misaligned address")
where they do not begin at a multiple of 16 bytes, as after a last layer of ten outputs. PyTorch's own kernel
takes them anywhere.
"""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

BYTES = 16


def normalise_where_it_lies(module: nn.Module) -> None:
    """Let each batch normalisation with a tensor that is not aligned use PyTorch's own kernel."""
    for part in module.modules():
        if isinstance(part, _BatchNorm) and not _aligned(part):
            part.register_forward_pre_hook(_without_cudnn)
            part.register_forward_hook(_with_cudnn, always_call=True)


def _aligned(part: _BatchNorm) -> bool:
    tensors = (part.weight, part.bias, part.running_mean, part.running_var)
    return not any(tensor is not None and tensor.data_ptr() % BYTES for tensor in tensors)


def _without_cudnn(*_: object) -> None:
    torch.backends.cudnn.enabled = False


def _with_cudnn(*_: object) -> None:
    torch.backends.cudnn.enabled = True
