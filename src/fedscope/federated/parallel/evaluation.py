"""How good a model is on a split, as a whole, per domain and per class."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.parallel.workers import Workers
from fedscope.federated.record.flat import channels_last

SCALARS = 20_000_000  # of a batch of inputs
MOST = (100, 1000)  # samples of a batch: on a CPU few, whose activations stay in its caches; on a GPU


@dataclass(frozen=True)
class EvaluationScore:
    """Mean loss and accuracy; where the data has domains, the unweighted means over them."""

    loss: float
    accuracy: float  # NaN where the task has no classes
    domains: dict[str, float] = field(default_factory=dict)  # accuracy in each
    classes: tuple[float, ...] = ()  # accuracy on each; NaN for one without a sample

    @property
    def deciding(self) -> float:
        """What the best round has most of: accuracy, and without classes the negative loss."""
        return -self.loss if math.isnan(self.accuracy) else self.accuracy

    @classmethod
    def from_sums(cls, sums: Tensor, domains: Sequence[str]) -> "EvaluationScore":
        """Return the score from :func:`score_sums`; domains without a sample are left out.

        FedBN (Li et al. 2021) reports the unweighted mean over domains; with domains of one size, as FedFOR's
        (Tian et al. 2022), it is the accuracy on all samples.
        """
        there = sums[:, 2] > 0
        means = sums[there, :2] / sums[there, 2:3]
        names = [name for name, found in zip(domains, there.tolist(), strict=False) if found]
        loss, accuracy = means.mean(0).tolist()
        right, samples = sums[:, 3:].sum(0).view(-1, 2).T
        by_domain = dict(zip(names, means[:, 1].tolist(), strict=False)) if domains else {}
        return cls(loss, accuracy, by_domain, tuple((right / samples).tolist()))


NOTHING = EvaluationScore(math.nan, math.nan)
"""Of a model that is not evaluated."""


@torch.no_grad()
def score_sums(
    model: nn.Module,
    split: Split,
    pipeline: Pipeline,
    workers: Workers | None = None,
    arranged: Callable[[Tensor], Tensor] = channels_last,
    classes: int = 0,
) -> Tensor:
    """Return sums over the split by domain, (D, 3 + 2·classes) float64.

    They are cross-entropy, right answers and samples, and then right answers and samples of each class.
    ``model`` is put into eval mode, and gets each batch as ``arranged`` lays it out. Without domains D is 1.
    Of sequences answers and samples are tokens, divided by n̄, the tokens of a mean sequence.
    Batches are of 100 images, on a GPU of 1,000, or of fewer large ones. The workers take them in turn, and
    rank 0 returns the sums over all, in the batches' order, so that they are the same for any number of
    workers. Of one batch they are its own: it waits for nobody.
    """
    workers = workers or Workers()
    model.eval()
    domains = torch.zeros_like(split.labels) if split.domains is None else split.domains
    loss = split.task_loss
    size = min(MOST[split.labels.is_cuda], max(1, SCALARS // _scalars(model, split, pipeline)))
    batches = torch.arange(len(split), device=split.labels.device).split(size)
    count = 1 + int(domains.max())
    sums = torch.zeros(len(batches), count, 3 + 2 * classes, dtype=torch.float64, device=split.labels.device)
    own = range(workers.rank, len(batches), workers.size)
    nothing = torch.empty(0, 0, device=split.labels.device)
    ahead = pipeline.ahead(split.images, [(batches[index], nothing) for index in own])
    for index, (rows, _) in zip(own, ahead, strict=True):
        inputs = arranged(pipeline.test(split.images, rows))
        labels, logits = split.labels[rows], model(inputs)
        losses, right = loss.each(logits, split.wanted[rows]), loss.right(logits, split.wanted[rows])
        columns = torch.stack([losses, right, loss.weights(split.wanted[rows]).to(right)], 1).double()
        sums[index, :, :3].index_add_(0, domains[rows], columns)
        if classes:
            by_class = sums.new_zeros(count * classes, 2)
            by_class.index_add_(0, domains[rows] * classes + labels, columns[:, 1:])
            sums[index, :, 3:] = by_class.view(count, -1)
    return (workers.total(sums) if len(batches) > 1 else sums.cpu()).sum(0)


def _scalars(model: nn.Module, split: Split, pipeline: Pipeline) -> int:
    inputs = split.images.shape[1:].numel()
    if split.targets is None or not len(split):
        return inputs
    outputs = model(
        pipeline.test(split.images, torch.zeros(1, dtype=torch.int64, device=split.labels.device))
    )
    return max(inputs, outputs.numel()) if isinstance(outputs, Tensor) else inputs
