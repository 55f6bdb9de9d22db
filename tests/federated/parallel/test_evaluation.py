"""Who waits for whom when workers evaluate."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from fedscope.data.augment import AS_THEY_ARE
from fedscope.data.loading.datasets import Split
from fedscope.federated.parallel.evaluation import score_sums
from fedscope.federated.parallel.workers import Workers


@dataclass(frozen=True)
class Recorded(Workers):
    """A worker whose messages lie in a list: what rank 1 sends, rank 0 receives."""

    messages: list[Tensor] = field(default_factory=list)

    def send(self, rank: int, *tensors: Tensor) -> None:
        assert (self.rank, rank) == (1, 0)
        self.messages.extend(tensor.clone() for tensor in tensors)

    def receive(self, rank: int, *tensors: Tensor) -> None:
        assert (self.rank, rank) == (0, 1)
        for tensor in tensors:
            tensor.copy_(self.messages.pop(0))


@pytest.mark.parametrize(("samples", "messages"), [(230, 1), (100, 0)])
def test_two_workers_find_the_bits_of_one_and_of_one_batch_nobody_waits(samples: int, messages: int) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    split = Split(torch.randn(samples, 1, 3, 3), torch.randint(0, 4, (samples,)))
    alone = score_sums(model, split, AS_THEY_ARE, classes=4)
    sent: list[Tensor] = []
    score_sums(model, split, AS_THEY_ARE, Recorded(1, 2, sent), classes=4)
    assert len(sent) == messages
    assert torch.equal(score_sums(model, split, AS_THEY_ARE, Recorded(0, 2, sent), classes=4), alone)
    assert not sent
    assert alone[0, 2] == samples


def test_a_cpu_takes_few_samples_at_a_time() -> None:
    """As many as fit its caches with their activations."""
    taken: list[int] = []
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    model.register_forward_pre_hook(lambda _, inputs: taken.append(len(inputs[0])))
    split = Split(torch.randn(230, 1, 3, 3), torch.randint(0, 4, (230,)))
    score_sums(model, split, AS_THEY_ARE)
    assert taken == [100, 100, 30]
