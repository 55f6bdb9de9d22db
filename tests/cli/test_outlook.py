"""`--dry-run` of landscapes, reports and trainings: what they would take, and nothing written."""

import re
from pathlib import Path

import pytest

from fedscope.workflows.progress import about
from tests.cli.conftest import Command

SMALL = ("--samples", "16", "--batch-size", "8", "--threads", "1", "--dry-run")


@pytest.mark.parametrize(
    ("options", "points", "eigenvectors"),
    [
        (("--grid", "7"), 49, True),
        (("--grid", "7x3", "--directions", "random"), 21, False),
        (("--grid", "7", "--directions", "line", "tiny@client0"), 7, False),
    ],
)
def test_a_landscape(fedscope: Command, options: tuple[str, ...], points: int, eigenvectors: bool) -> None:
    done = fedscope("plot-landscape", "tiny", *options, *SMALL)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert all(re.search(rf": {points} points of [\d.e-]+ s, (about |less)", line) for line in lines)
    assert ("eigenvectors, some 10 to 50 products" in lines[-1]) == eigenvectors
    assert [path.name for path in Path().iterdir()] == []
    found = fedscope("plot-landscape", "tiny", *options, *SMALL, "--json", "-").json
    first = found[0] if isinstance(found, list) else found
    assert (first["points"], first["point_seconds"] > 0) == (points, True)


def test_a_report(fedscope: Command) -> None:
    done = fedscope("report", "tiny", "--grid", "3", "--probes", "2", *SMALL)
    assert done.code == 0, done.err
    for part in (
        "peak memory up to about",
        "products of",
        ": 9 points of",
        "H_N and H_D besides: 16 products",
    ):
        assert part in done.out
    assert [path.name for path in Path().iterdir()] == []
    assert "H_N" not in fedscope("report", "tiny", "--grid", "3", "--no-clients", *SMALL).out
    assert fedscope("report", "tiny", "--no-compute", *SMALL).code == 2


def test_the_clients_that_would_be_compared(fedscope: Command) -> None:
    done = fedscope("hessian", "tiny", "--clients", "--probes", "2", *SMALL)
    assert done.code == 0, done.err
    plan = fedscope("hessian", "tiny", "--clients", "--probes", "2", *SMALL, "--json").json
    assert plan["clients"] >= 2
    assert f"H_N and H_D of {plan['clients']} clients besides" in done.out.splitlines()[-1]
    assert fedscope("hessian", "tiny", *SMALL, "--json").json["clients"] == 0


def test_less_than_a_second_is_said_once() -> None:
    assert (about(0.3), about(9), about(0.2, 0.9), about(2, 10)) == (
        "less than 1 s", "about 9 s", "less than 1 s", "2 s to 10 s",
    )  # fmt: skip


def test_a_training(fedscope: Command) -> None:
    small = (
        "--model", "mlp_digits", "--clients", "3", "--rounds", "40", "--train-samples", "60",
        "--threads", "1",
    )  # fmt: skip
    done = fedscope("train", *small, "--registry", "r", "--dry-run")
    assert done.code == 0, done.err
    first, second, third = done.out.splitlines()
    assert re.fullmatch(r"40 rounds, (about .+|less than 1 s): round 3 of a trial took .+", first)
    assert "3 clients, 6 gradients of mini-batches" in second
    assert third.startswith("a model's file: 0.0")
    assert [path.name for path in Path().iterdir()] == []
    assert fedscope("train", *small, "--seeds", "0,1", "--dry-run", "--json").json["rounds"] == 80
    assert "leave --resume" in fedscope("train", "--name", "tiny", "--resume", "--dry-run").err
