"""The demonstration: every file it promises, and with ``-v`` where the time went."""

from functools import partial
from pathlib import Path

import pytest

from fedscope.cli.demo import FILES
from fedscope.workflows import demonstration
from tests.cli.conftest import Command

SMALL = {"model": "mlp_digits", "clients": 2, "rounds": 1, "train_samples": 64, "test_samples": 32}


def test_it_writes_what_it_promises_and_says_where_the_time_went(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration, "USUAL", demonstration.Effort(32, 4, 5, SMALL))
    demo = partial(fedscope, "demo", "--registry", "r", "--out", "shown")
    done = demo("-v")
    assert done.code == 0
    assert {path.name for path in Path("shown").iterdir()} == set(FILES)
    shown, _, spent = done.out.partition("Where the time went")
    assert "demo-fedavg+man" in shown
    steps = ("round", "λ_max", "trace", "density", "cross-client", "surface", "start, pictures and report")
    assert [step for step in steps if step not in spent] == []
    assert "Where the time went" not in demo().out
