"""The score of a language model: shares of tokens, over the split and in each topic."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import AS_THEY_ARE
from fedscope.data.loading.datasets import Split
from fedscope.federated.parallel.evaluation import EvaluationScore, score_sums
from fedscope.task_loss import IGNORED


def test_losses_and_accuracies_are_means_over_tokens() -> None:
    draw = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    inputs, targets = torch.randint(7, (2, 30, 6), generator=draw)
    topics = torch.arange(30) % 3
    for row in range(30):  # the third topic has six times the tokens of the first
        targets[row, (1, 3, 6)[row % 3] :] = IGNORED
    sums = score_sums(model, Split(inputs, topics, targets=targets), AS_THEY_ARE, classes=3)
    found, kept = EvaluationScore.from_sums(sums, ()), targets != IGNORED
    with torch.no_grad():
        logits = model(inputs)
    right = (logits.argmax(-1) == targets)[kept].double()
    owners = topics[:, None].expand_as(kept)[kept]
    torch.testing.assert_close(
        found.loss, float(cross_entropy(logits[kept], targets[kept])), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(found.accuracy, float(right.mean()), rtol=1e-6, atol=0)
    by_topic = tuple(float(right[owners == topic].mean()) for topic in range(3))
    torch.testing.assert_close(found.classes, by_topic, rtol=1e-6, atol=0)
