"""`--json [FILE]` is the same in every command."""

import json
from pathlib import Path

import click
import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli.options.command import with_value
from tests.cli.conftest import Command

RESULTS = [
    (("runs", "list"), list),
    (("runs", "show", "tiny"), dict),
    (("runs", "show", "tiny", "--provenance"), list),
    (("runs", "diff", "tiny", "tiny"), dict),
    (("runs", "verify", "tiny"), dict),
    (("methods", "list"), list),
    (("methods", "show", "fedprox"), dict),
    (("presets", "list"), list),
    (("presets", "show", "fedalign/t1"), dict),
    (("data", "list"), list),
    (("data", "show", "digits"), dict),
    (("data", "check", "digits"), dict),
    (("models", "show", "mlp_digits"), dict),
    (("hessian", "tiny", "--samples", "64", "--probes", "2"), dict),
    (("hessian", "tiny", "tiny@best", "--samples", "64", "--probes", "2"), list),
]


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.mark.parametrize(("asked", "kind"), RESULTS)
def test_json_is_printed_alone_or_written_beside_what_people_read(
    fedscope: Command, asked: tuple[str, ...], kind: type
) -> None:
    done = fedscope(*asked, "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, kind)
    for target in (["--json", "a.json"], ["--json=b"]):
        beside = fedscope(*asked, *target)
        assert beside.code == 0, beside.err
        assert beside.out
        assert not beside.out.startswith(("{", "["))
        assert isinstance(json.loads(Path(target[-1].removeprefix("--json=")).read_text("utf-8")), kind)


def test_a_file_is_taken_only_by_its_name() -> None:
    assert with_value(["--json"], "--json") == ["--json=-"]
    assert with_value(["--json", "run"], "--json") == ["--json=-", "run"]
    assert with_value(["a", "--json", "--top-k", "2"], "--json") == ["a", "--json=-", "--top-k", "2"]
    with pytest.raises(click.UsageError, match=r"takes a .json file: name it so, or write --json=out.txt"):
        with_value(["a", "--json", "out.txt"], "--json")
    for kept in (["--json", "-"], ["--json", "x.json", "a"], ["--json=x"], ["--", "--json"]):
        assert with_value(kept, "--json") == kept


def test_a_file_that_cannot_be_written_is_refused_before_the_work(fedscope: Command) -> None:
    Path("taken").touch()
    done = fedscope("methods", "list", "--json", "taken/x.json")
    assert (done.code, done.out) == (2, "")
