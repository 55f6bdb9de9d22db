"""A residual network at a smaller width: the first channels of every layer, out of the same tensors.

GradAug's and FedAlign's sub-networks (Yang et al. 2020; Mendieta et al. 2022). A layer of c channels uses
the first r(ω·c) of them. The module is only read: no buffer changes, no hook fires, and the weights may be
replaced for the call (``torch.func.functional_call``).
"""

from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, group_norm, linear, max_pool2d, relu

from fedscope.errors import UserError
from fedscope.models.resnet import Block, Padded, ResNet, padded


def channels(count: int, width: float, divisor: int = 8) -> int:
    """Return r(v) at v = ``width``·``count``: the multiple of ``divisor`` nearest to v, never much below it.

    r(v) is max(1, ⌊v + d/2⌋ rounded down to a multiple of d), and d more where that is below 0.9 v
    (FedAlign's published code), at most ``count``; at width 1 it is ``count``.
    """
    if not 0 < width <= 1:
        raise ValueError(f"a width lies in (0, 1], {width} does not")
    if width == 1:
        return count
    wanted = width * count
    rounded = max(1, int(wanted + divisor / 2) // divisor * divisor)
    return min(count, rounded + divisor if rounded < 0.9 * wanted else rounded)


def slim(module: nn.Module, x: Tensor, width: float, divisor: int = 8) -> Tensor:
    """Apply ``module`` at ``width`` to x, (B, c, H, W) or (B, c); each layer reads the c there are.

    Convolutions and padded shortcuts slim their outputs, linear layers their inputs only. BatchNorm
    normalises by the batch, at width 1 in eval mode by its running statistics, and leaves those alone;
    GroupNorm divides the channels there are into as many groups. Every block is evaluated, whatever its gate.
    """
    match module:
        case nn.Conv2d(groups=1, padding_mode="zeros"):
            count = channels(module.out_channels, width, divisor)
            bias = None if module.bias is None else module.bias[:count]
            weight = module.weight[:count, : x.shape[1]]
            return conv2d(x, weight, bias, module.stride, module.padding, module.dilation)
        case nn.BatchNorm2d(affine=True):
            weight, bias = module.weight[: x.shape[1]], module.bias[: x.shape[1]]
            if width == 1 and not module.training:
                mean, variance = module.running_mean, module.running_var
                return batch_norm(x, mean, variance, weight, bias, eps=module.eps)
            return batch_norm(x, None, None, weight, bias, training=True, eps=module.eps)
        case nn.GroupNorm(affine=True) if x.shape[1] % module.num_groups == 0:
            weight, bias = module.weight[: x.shape[1]], module.bias[: x.shape[1]]
            return group_norm(x, module.num_groups, weight, bias, module.eps)
        case nn.Linear():
            return linear(x, module.weight[:, : x.shape[1]], module.bias)
        case nn.ReLU():
            return relu(x)
        case nn.MaxPool2d(return_indices=False):
            return max_pool2d(
                x, module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode
            )
        case nn.Identity():
            return x
        case Padded():
            return padded(x, channels(module.outputs, width, divisor), module.stride)
        case nn.Sequential():
            for layer in module:
                x = slim(layer, x, width, divisor)
            return x
        case Block():
            branch = slim(module.branch, x, width, divisor)
            return relu(branch + slim(module.shortcut, x, width, divisor))
        case ResNet():
            for group in (module.stem, *module.groups):
                x = slim(group, x, width, divisor)
            x = x.mean((2, 3))
            if module.head is not None:
                x = slim(module.head, x, width, divisor)
            return slim(module.fc, x, width, divisor)
        case _:
            raise UserError(
                f"{type(module).__name__} has no smaller width: GradAug and FedAlign need a residual "
                "network, such as resnet_digits or resnet56_bottleneck"
            )
