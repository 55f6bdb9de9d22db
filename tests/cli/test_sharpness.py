"""`fedscope sharpness`: its table, its record, its picture, and what it refuses."""

from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.figures.embedded_record import read_record
from tests.cli.conftest import Command

FEW = ("--samples", "32", "--batch-size", "8", "--threads", "1")
PAIRS = ("--pairs", "2")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_a_table_a_record_and_a_picture(fedscope: Command) -> None:
    done = fedscope(
        "sharpness",
        "tiny",
        *FEW,
        *PAIRS,
        "--only",
        "average_l2, sam",
        "--only",
        "low-pass",
        "--json",
        "a.json",
    )
    assert done.code == 0, done.err
    assert "average ℓ₂" in done.out
    assert "SAM step" in done.out
    assert "low-pass" in done.out
    again = fedscope(
        "sharpness",
        "tiny@0",
        "tiny",
        *FEW,
        *PAIRS,
        "--only",
        "average_l2",
        "--json",
        "-",
        "--figure",
        "a.png",
    )
    assert again.code == 0, again.err
    first, second = again.json
    assert (first["schema"], second["reused"], first["reused"]) == ("fedscope/sharpness/1", True, False)
    assert second["differences"][0]["quantity"] == "average_l2"
    assert read_record(Path("a.png"))["checkpoints"] == [
        one["checkpoint"]["sha256"] for one in (first, second)
    ]


def test_against_the_gap(fedscope: Command) -> None:
    names = ("tiny@0", "tiny@best", "tiny", "tiny@client0")
    arguments = (*names, *FEW, "--only", "sam", "--against", "gap")
    found = fedscope("sharpness", *arguments, "--json", "-", "--figure", "gap.pdf")
    assert found.code == 0, found.err
    assert found.json["schema"] == "fedscope/sharpness-correlation/1"
    assert found.json["correlations"][0]["count"] == 4
    assert len(found.json["records"]) == 4
    assert Path("gap.pdf").is_file()
    shown = fedscope("sharpness", *arguments)
    assert "Kendall's τ with test loss − training loss" in shown.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "sharp"), "there is no quantity 'sharp'"),
        (("--only", "sam,sharp"), "there is no quantity 'sharp'"),
        (("--only", "sam,"), "there is no quantity ''"),
        (("--kind", "gap", "--figure", "a.png"), "add --against gap"),
        (("--figure", "a.gif"), "name it with the suffix"),
        (("--against", "gap", "--only", "sam"), "at least 4 checkpoints"),
    ],
)
def test_what_it_refuses(fedscope: Command, arguments: tuple[str, ...], message: str) -> None:
    done = fedscope("sharpness", "tiny", *FEW, *arguments)
    assert done.code == 2
    assert message in done.err
