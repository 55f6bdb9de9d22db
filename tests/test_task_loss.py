"""The loss of sequences is the mean over all tokens, however they are cut into batches."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.data.loading.datasets import Split, fingerprint
from fedscope.task_loss import IGNORED, TaskLoss


def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (6, 5, 4) and targets of 5, 1, 3, 2, 5, 4 tokens."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, 4, dtype=torch.float64, generator=draw)
    targets = torch.randint(4, (6, 5), generator=draw)
    for row, tokens in enumerate((5, 1, 3, 2, 5, 4)):
        targets[row, tokens:] = IGNORED
    return logits, targets


def split(targets: torch.Tensor) -> Split:
    return Split(torch.zeros_like(targets), torch.zeros(len(targets), dtype=torch.int64), targets=targets)


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_batches_weighted_by_samples_make_the_mean_over_tokens(size: int) -> None:
    logits, targets = ragged()
    loss = split(targets).task_loss
    batches = zip(logits.split(size), targets.split(size), strict=True)
    mean = sum(len(x) * loss(x, y) for x, y in batches) / len(targets)
    kept = targets != IGNORED
    assert loss.tokens == 20 / 6
    assert torch.allclose(torch.as_tensor(mean), cross_entropy(logits[kept], targets[kept]))


def test_right_answers_are_tokens() -> None:
    logits, targets = ragged()
    loss, kept = split(targets).task_loss, targets != IGNORED
    share = (logits[kept].argmax(-1) == targets[kept]).double().mean()
    assert torch.allclose(loss.right(logits, targets).mean(), share)
    assert torch.equal(loss.weights(targets) * (20 / 6), kept.sum(1))
    assert torch.allclose(loss.total(logits, targets), loss.each(logits, targets).sum())


def test_of_classes_it_is_pytorchs() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(7, 3, generator=draw), torch.randint(3, (7,), generator=draw)
    loss = Split(torch.zeros(7, 2), labels).task_loss
    assert loss == TaskLoss()
    assert torch.equal(loss(logits, labels), cross_entropy(logits, labels))
    assert torch.equal(loss.total(logits, labels), cross_entropy(logits, labels, reduction="sum"))
    assert torch.equal(loss.each(logits, labels), cross_entropy(logits, labels, reduction="none"))
    assert loss.weights(labels).tolist() == [1] * 7
    assert loss.right(logits, labels).tolist() == (logits.argmax(1) == labels).float().tolist()


def test_targets_are_taken_moved_and_hashed_with_their_split() -> None:
    targets = ragged()[1]
    whole, rows = split(targets), torch.tensor([4, 1])
    part = whole.take(rows).to("cpu")
    assert torch.equal(part.wanted, targets[rows])
    assert part.task_loss.tokens == 3
    other = targets.clone()
    other[0, 0] = (other[0, 0] + 1) % 4
    assert fingerprint(whole) != fingerprint(split(other))
