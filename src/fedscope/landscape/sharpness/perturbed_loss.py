"""The loss of each batch at perturbed weights, by the network as it is, with the passes counted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.mean_loss import check_loss
from fedscope.landscape.loss.trees import Tree
from fedscope.landscape.sharpness.sharpness_result import Cost
from fedscope.streams import torch_stream

_LEAST = 1e-10  # norm of logits that are divided by it


class Perturbed:
    """L_b(w + δ) of the B batches, and their gradients.

    Args:
        m: deal them at random to batches of at most m samples, of near-equal sizes; None: as they are.
        parameters: patterns of the names that are perturbed; None: all that require a gradient.
        normalize_logits: take the loss of (f − mean f)/‖f − mean f‖ over the last dimension of the outputs
            f (Andriushchenko et al. 2023, section 3.1).
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Data,
        *,
        m: int | None = None,
        seed: int = 0,
        bn: BatchNormMode = "eval",
        parameters: Sequence[str] | None = None,
        normalize_logits: bool = False,
    ) -> None:
        fn = normalized(loss_fn) if normalize_logits else loss_fn
        self.loss = FlatLoss(model, fn, batches, bn=bn, parameters=parameters)
        check_loss(self.loss)
        if m is not None:
            self._deal(m, seed)
        self.weights: Tensor = self.loss.center  # (n,)
        self.sizes = self.loss.batches.sizes
        self.population = self.loss.batches.population
        self._forwards = self.gradients = 0  # of batches, so far

    def _deal(self, m: int, seed: int) -> None:
        dealt = of_size(self.loss.batches, m, seed)
        if self.loss.mixed and len(dealt) > 1:
            raise UserError(
                f"BatchNorm uses the batch's own statistics, which {len(dealt)} batches of {m} do not share: "
                "leave m out, or take bn='eval' with layers that keep running statistics"
            )
        self.loss.batches = dealt

    @property
    def cost(self) -> Cost:
        count = len(self.sizes)
        return Cost(forwards=-(-self._forwards // count), gradients=-(-self.gradients // count))

    @torch.no_grad()
    def values(self, delta: Tensor, read: Callable[[Any, Tree], Tensor] | None = None) -> Tensor:
        """Return each batch's loss at w + δ, (B,) float64; or the scalar that ``read`` has of its outputs."""
        with self._at(delta):
            pairs = ((self.loss.outputs(x), y) for x, y in self.loss.batches)
            found = [(read or self.loss.of)(outputs, y).double() for outputs, y in pairs]
        self._forwards += len(found)
        return torch.stack(found).cpu()

    def gradient(self, b: int, delta: Tensor) -> tuple[float, Tensor]:
        with self._at(delta), torch.enable_grad():
            loss = self.loss.on_batch(*self.loss.batches[b])
            slope = joined(pulled((loss,), self.loss.parameters, (torch.ones_like(loss),)))
        self.gradients += 1
        return float(loss.detach()), slope

    def mean(self, values: Tensor) -> Tensor:
        shares = torch.tensor(self.sizes, dtype=torch.float64)
        return values @ (shares / shares.sum())

    @contextmanager
    def _at(self, delta: Tensor) -> Iterator[None]:
        self.loss.load(self.weights + delta)
        try:
            with self.loss.plainly(), self.loss.exact():
                yield
        finally:
            self.loss.load(self.weights)


def of_size(batches: Batches, m: int, seed: int) -> Batches:
    if m < 1:
        raise UserError(f"m is {m}; a batch has at least 1 sample")
    order = torch.randperm(batches.samples, generator=torch_stream(seed, "m-sharpness batches"))
    return batches.taken([part.sort().values for part in order.tensor_split(-(-batches.samples // m))])


def normalized(loss_fn: LossFunction) -> LossFunction:
    def of_normalized(outputs: Any, targets: Tree) -> Tensor:
        if not isinstance(outputs, Tensor) or outputs.ndim < 2:
            raise UserError(
                "normalize_logits needs a network whose output is one tensor (samples, …, classes)"
            )
        centred = outputs - outputs.mean(-1, keepdim=True)
        return loss_fn(centred / centred.norm(dim=-1, keepdim=True).clamp(min=_LEAST), targets)

    return of_normalized


def error_rate(outputs: Any, targets: Tree) -> Tensor:
    scores = outputs if isinstance(outputs, Tensor) and outputs.ndim == 2 else None
    labels = targets if isinstance(targets, Tensor) and not targets.is_floating_point() else None
    if scores is None or labels is None or labels.shape != scores.shape[:1]:
        raise UserError("accuracy needs outputs (samples, classes) and labels (samples,), integers")
    return (scores.argmax(1) != labels).double().mean()
