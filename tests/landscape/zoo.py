"""The zoo: networks as their users write them, each with batches, a loss, and how it is evaluated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from . import zoo_images as images
from . import zoo_layers as layers
from . import zoo_odd as odd

Way = Literal["fast", "plain", "falls back", "refused"]


@dataclass(frozen=True)
class Animal:
    """A network, the batches its users have, the loss they take, and what is known of its products."""

    make: Callable[[], nn.Module]
    data: Callable[[], list[tuple[Any, Any]]]
    loss: Callable[[Any, Any], Tensor] = cross_entropy
    way: Way = "fast"
    says: str = ""  # in the refusal
    dtype: torch.dtype = torch.float32
    by_differences: bool = False  # PyTorch's own second derivative is wrong

    def model(self) -> nn.Module:
        """Return the network, its weights and statistics drawn from a fixed seed, in eval mode."""
        torch.manual_seed(0)
        model = self.make()
        model = model.double() if self.dtype == torch.float64 else model
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.normal_(0, 0.2)  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
        return model.eval()

    def batches(self) -> list[tuple[Any, Any]]:
        """Return the batches, drawn from a fixed seed."""
        torch.manual_seed(1)
        batches = self.data()
        return [(x.double(), y) for x, y in batches] if self.dtype == torch.float64 else batches


def pictures(side: int = 8, sizes: tuple[int, ...] = (6, 3), labels: tuple[int, ...] = ()) -> Any:
    """Return images with a label each, or one for each place of ``labels``."""
    return [(torch.randn(n, 3, side, side), torch.randint(4, (n, *labels))) for n in sizes]


def texts(labels: tuple[int, ...] = (), sizes: tuple[int, ...] = (6, 3)) -> Any:
    """Return sequences of 5 words with a label each."""
    return [(torch.randint(1, 20, (n, 5)), torch.randint(4, (n, *labels))) for n in sizes]


def rows(sizes: tuple[int, ...] = (6, 3)) -> Any:
    """Return vectors of 7 numbers with a label each."""
    return [(torch.randn(n, 7), torch.randint(4, (n,))) for n in sizes]


def _padded() -> Any:
    return [((words, (words > 15).long()), labels) for words, labels in texts()]


def _pairs() -> Any:
    return [((x, words), y) for (x, y), (words, _) in zip(pictures(), texts(), strict=True)]


def _enlarged() -> Any:
    return [(x, torch.randn(len(x), 3, 16, 16)) for x, _ in pictures()]


def _forces() -> Any:
    return [(x, (torch.randn(len(x), 1), torch.randn_like(x))) for x, _ in pictures()]


def _next_words() -> Any:
    return [(words, words) for words, _ in texts()]


def _two_heads(output: Any, labels: Tensor) -> Tensor:
    return cross_entropy(output[0], labels) + 0.3 * cross_entropy(output[1], labels)


def _energy(output: Any, wanted: Any) -> Tensor:
    return mse_loss(output[0], wanted[0]) + mse_loss(output[1], wanted[1])


def _weighted(output: Any, labels: Tensor) -> Tensor:
    """The samples' own weights, of which there are as many as a batch has samples."""
    return (torch.arange(1.0, 7.0) * cross_entropy(output, labels, reduction="none")).mean()


def _first(output: Any, labels: Tensor) -> Tensor:
    return cross_entropy(output[0], labels)


def _compiled() -> nn.Module:
    net: Any = torch.compile(images.SqueezeExcite())
    return net  # type: ignore[no-any-return]


def _partly_compiled() -> nn.Module:
    net = images.SqueezeExcite()
    net.excite = torch.compile(net.excite)  # type: ignore[assignment]
    return net


EXACT: dict[str, Any] = {"dtype": torch.float64, "by_differences": True}
PLAIN: Way = "plain"
wrapped = partial(partial, layers.Perceptron)

NETS: dict[str, Animal] = {
    "LeNet of the tutorial": Animal(images.LeNet, partial(pictures, 32)),
    "VGG": Animal(images.VGG, pictures),
    "ResNet for CIFAR": Animal(images.CifarResNet, partial(pictures, 16)),
    "DenseNet": Animal(images.DenseNet, pictures),
    "MobileNet": Animal(images.MobileNet, pictures),
    "squeeze-excite": Animal(images.SqueezeExcite, pictures),
    "Inception": Animal(images.Inception, pictures, _two_heads),
    "U-Net": Animal(images.UNet, partial(pictures, labels=(8, 8))),
    "super-resolution": Animal(images.SuperResolution, _enlarged, mse_loss),
    "group, instance, layer norm": Animal(images.GroupNormNet, pictures),
    "functional batch norm": Animal(images.FunctionalNorm, pictures, way="plain"),
    "weight norm, hook": Animal(partial(odd.normed, "weight", "hook"), pictures, **EXACT),
    "weight norm, parametrization": Animal(partial(odd.normed, "weight", "new"), pictures, **EXACT),
    "spectral norm, hook": Animal(partial(odd.normed, "spectral", "hook"), pictures),
    "spectral norm, parametrization": Animal(partial(odd.normed, "spectral", "new"), pictures),
    "frozen body": Animal(odd.frozen, pictures),
    "channels last": Animal(odd.channels_last, pictures),
    "compiled": Animal(_compiled, pictures),
    "partly compiled": Animal(_partly_compiled, pictures),
    "checkpointed": Animal(partial(odd.Checkpointed, reentrant=False), pictures),
    "checkpointed, reentrant": Animal(
        partial(odd.Checkpointed, reentrant=True), pictures, way="refused", says="use_reentrant=False"
    ),
    "own hook": Animal(odd.Hooked, pictures),
    "loss of these samples": Animal(images.SqueezeExcite, partial(pictures, sizes=(6, 6)), _weighted),
    "inputs written": Animal(odd.Normalising, pictures),
    "weights in a list": Animal(odd.Listed, pictures),
    "gradient in forward": Animal(odd.Derivative, _forces, _energy, way="falls back"),
    "two inputs": Animal(layers.TwoTowers, _pairs),
    "LSTM": Animal(partial(layers.Recurrent, nn.LSTM), texts, way="plain"),
    "GRU": Animal(partial(layers.Recurrent, nn.GRU), texts, way="plain"),
    "fixed batch": Animal(odd.FixedBatch, partial(rows, (16, 16)), way="plain"),
    "TextCNN": Animal(layers.TextCNN, texts),
    "bag of words": Animal(layers.BagOfWords, texts, way="refused", says="use nn.Embedding"),
    "attention": Animal(layers.Attending, _padded, _first, way="plain"),
    "transformer encoder, tied": Animal(layers.Encoder, _next_words, way="plain"),
    "dict out": Animal(
        wrapped(lambda logits, h: {"out": logits, "h": h}),
        rows,
        lambda o, y: cross_entropy(o["out"], y),
        PLAIN,
    ),
    "named tuple out": Animal(wrapped(layers.Scores), rows, lambda o, y: cross_entropy(o.logits, y), PLAIN),
    "dataclass out": Animal(wrapped(layers.Prediction), rows, lambda o, y: cross_entropy(o.logits, y), PLAIN),
    "buffers written": Animal(odd.Counting, rows),
    "frequency domain": Animal(layers.Spectral, rows),
    "complex parameters": Animal(layers.Complex, rows, way="refused", says="view_as_complex"),
    "own autograd function": Animal(partial(odd.Custom, odd.Cube), rows, way="plain"),
    "own function, once": Animal(
        partial(odd.Custom, odd.OnceCube), rows, way="refused", says="once_differentiable"
    ),
}
