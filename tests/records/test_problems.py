"""Which measurements the tables, reports and pages of a run take for a run's own curvature."""

import pytest

from fedscope.records.hessian_record import ProblemEntry

USUAL = {"samples": 8, "split": "train", "engine": "fedscope", "reading": "paper"}


def test_the_plain_measurement_is_usual() -> None:
    assert ProblemEntry.read(USUAL).is_usual


@pytest.mark.parametrize(
    "change",
    [
        {"operator": "ggn"},
        {"engine": "power"},
        {"reading": "code"},
        {"parameters": "conv*"},
        {"augmented": True},
        {"normalisation": "fedgloss_measured"},
        {"products": "finite-differences"},
        {"loss": "mine:loss"},
        {"departs": "the gradient is not that of the loss"},
    ],
    ids=str,
)
def test_any_other_is_not(change: dict[str, object]) -> None:
    assert not ProblemEntry.read(USUAL | change).is_usual


def test_ones_own_data_may_have_a_loss_of_its_own() -> None:
    assert ProblemEntry.read(USUAL | {"split": None, "loss": "mine:loss"}).is_usual
