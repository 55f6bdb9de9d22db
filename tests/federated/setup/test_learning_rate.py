"""The learning rate of every round against PyTorch's schedulers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LRScheduler, SequentialLR, StepLR

from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.methods import parse
from fedscope.federated.record.options import Reading
from fedscope.federated.setup.learning_rate import learning_rate, round_rate


class Growing(LRScheduler):
    """t/(W + 1) of the rate in round t."""

    def __init__(self, optimizer: SGD, rounds: int):
        self.rounds = rounds
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [0.3 * (self.last_epoch + 1) / (self.rounds + 1)]


@pytest.mark.parametrize("warmup", [0, 1, 4])
@pytest.mark.parametrize(
    "fields",
    [
        {"lr_decay": 0.9},
        {"lr_decay": 0.1, "lr_schedule": "step", "lr_step": 3},
        {"lr_schedule": "cosine"},
        {"lr_schedule": "cosine", "lr_min": 0.01},
    ],
)
def test_the_rates_are_pytorchs(fields: dict[str, Any], warmup: int) -> None:
    settings = Settings(lr=0.3, rounds=15, lr_warmup=warmup, **fields)
    optimizer = SGD(nn.Linear(1, 1).parameters(), lr=0.3)
    made: dict[str, Callable[[], LRScheduler]] = {
        "exponential": lambda: ExponentialLR(optimizer, settings.lr_decay),
        "step": lambda: StepLR(optimizer, 3, settings.lr_decay),
        "cosine": lambda: CosineAnnealingLR(optimizer, 15 - warmup, settings.lr_min),
    }
    after = made[settings.lr_schedule]()
    expected = after if not warmup else SequentialLR(optimizer, [Growing(optimizer, warmup), after], [warmup])
    for round in range(1, 16):
        assert learning_rate(settings, round) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        optimizer.step()
        expected.step()


def test_exponential_decay_has_the_bits_that_it_always_had() -> None:
    settings = Settings(lr=0.1, lr_decay=0.998)
    assert [learning_rate(settings, t) for t in range(1, 400)] == [
        0.1 * 0.998 ** (t - 1) for t in range(1, 400)
    ]


def test_a_warm_up_longer_than_the_run_is_its_beginning() -> None:
    short, long = (Settings(lr_warmup=10, lr_schedule="cosine", rounds=rounds) for rounds in (3, 30))
    assert [learning_rate(short, t) for t in (1, 2, 3)] == [learning_rate(long, t) for t in (1, 2, 3)]


def rates(method: str, given: dict[str, str], reading: Reading, rounds: int = 12) -> list[float]:
    parsed = parse(method)
    settings = Settings(method=method, lr=0.2, options=parsed.values(given, reading))
    return [round_rate(settings, parsed, t) for t in range(1, rounds + 1)]


def test_the_cycles_of_swa_end_in_the_round_that_counts_and_in_the_program_before_it() -> None:
    given = {"swa.start": "7", "swa.cycle": "3", "swa.end": "0.1"}
    high, middle, low = 0.2 * 0.7, 0.2 * 0.4, 0.2 * 0.1  # 2/3, 1/3 and 0 of the way up from 0.02
    paper = [*[0.2] * 4, high, middle, low, high, middle, low, high, middle]
    assert rates("fedsam+swa", given, "paper") == pytest.approx(paper)
    code = [*[0.2] * 3, high, middle, low, high, middle, low, high, middle, low]
    assert rates("fedsam+swa", given, "code") == pytest.approx(code)


def test_without_cycles_or_a_method_that_has_any_the_rate_is_the_schedules() -> None:
    for method, given in (("fedsam", {}), ("swa", {"swa.start": "2"}), ("swa", {"swa.end": "0.1"})):
        assert rates(method, given, "paper") == [0.2] * 12
    assert rates("swa", {"swa.start": "40", "swa.cycle": "3"}, "paper") == [0.2] * 12
