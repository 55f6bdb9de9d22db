"""The demonstration: every file it promises, and with ``-v`` where the time went."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedscope.cli.demo import FILES
from fedscope.workflows import demo as workflow
from fedscope.workflows.train.request import TrainRequest
from tests.cli.conftest import Command

SMALL = {"model": "mlp_digits", "clients": 2, "rounds": 1, "train_samples": 64, "test_samples": 32}


def _small(registry: Path, settings: dict[str, Any], **more: Any) -> TrainRequest:
    return TrainRequest(registry, {**settings, **SMALL}, **more)


def test_it_writes_what_it_promises_and_says_where_the_time_went(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "TrainRequest", _small)
    for name, value in {"SAMPLES": 32, "CLIENT_PROBES": 4, "GRID": 5}.items():
        monkeypatch.setattr(workflow, name, value)
    demo = partial(fedscope, "demo", "--registry", "r", "--out", "shown")
    quiet = demo()
    assert quiet.code == 0
    assert "demo-fedavg+man" in quiet.out
    assert "Where the time went" not in quiet.out
    assert {path.name for path in Path("shown").iterdir()} == set(FILES)
    said = demo("-v").out.partition("Where the time went")[2]
    for step in (
        "round",
        "λ_max",
        "trace",
        "density",
        "cross-client",
        "surface",
        "start, pictures and report",
    ):
        assert step in said, step
