from pathlib import Path

import pytest

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.partition.longtail import longtail_counts
from fedscope.reproduce.runs.estimate import MachineSpeed, per_round
from fedscope.reproduce.runs.inventory import RunInventory
from fedscope.workflows.progress import duration
from tests.reproduce.runs.test_inventory import cell, held


def test_a_round_is_so_many_image_passes() -> None:
    assert per_round(cell("FedAvg").settings) == 50_000 * 0.1 * 5
    assert per_round(cell("FedAvg", "", "fedalign/table1").settings) == 50_000 * 2
    tailed = cell("FedAvg", "column 2", "fedfor/table2").settings
    drawn = 10 * longtail_counts(500, 10, 0.01).sum()  # of 10 clients, 5000 rows each
    assert per_round(tailed) == pytest.approx(2 * drawn, rel=0.01)


def test_time_is_measured_where_it_can_be(tmp_path: Path) -> None:
    wanted = cell("FedAvg").settings
    guess = MachineSpeed(RunInventory(RunRegistry(tmp_path))).training(wanted)
    assert guess.basis == "guess"
    assert guess.seconds == pytest.approx(500 * 25_000 * 3 * 14.71e6 / 50e9, rel=0.01)
    run = held(tmp_path, "timed", cell("FedAvg"), "all.pt", threads=2)
    rounds = range(1, 501)  # 100 batches of 50 in 10 seconds on 2 workers of 2 threads: 125 images a second
    run.write_metrics([Round(round=n, accuracy=0.1, seconds=10.0, gradients=100, workers=2) for n in rounds])
    clock = MachineSpeed(RunInventory(RunRegistry(tmp_path)))
    assert clock.training(wanted).seconds == pytest.approx(500 * 25_000 / 125)
    assert clock.training(wanted).basis == "measured"
    assert clock.training(wanted, done=400).seconds == pytest.approx(100 * 25_000 / 125)
    twice = clock.training(cell("FedSAM", "δ = 0.3, round 150").settings)
    assert twice.seconds == pytest.approx(150 * 25_000 / 125 * 2)
    assert twice.basis == "scaled"
    slow = held(tmp_path, "slow", cell("FedDyn"), "all.pt", threads=2)  # which says less of FedSAM's time
    slow.write_metrics([Round(round=n, accuracy=0.1, seconds=90.0, gradients=100, workers=2) for n in rounds])
    both = MachineSpeed(RunInventory(RunRegistry(tmp_path)))
    assert len(both.rates) == 2
    assert both.training(cell("FedSAM", "δ = 0.3, round 150").settings) == twice
    RunRegistry(tmp_path).delete(slow)
    own = run.manifest()
    settings = own.settings.model_copy(update={"device": "cuda"})
    run.write_manifest(own.model_copy(update={"settings": settings}))
    assert (
        MachineSpeed(RunInventory(RunRegistry(tmp_path))).training(wanted) == guess
    )  # what a GPU took tells nothing


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.5, "less than 1 s"), (2.5, "2.5 s"), (600, "10 min"), (7200, "2 h"), (172_800, "2 days")],
)
def test_durations_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said
