"""The hint at what a mistyped name was meant to be, and what other programs say in short."""

from pathlib import Path
from typing import Literal, TypedDict, Unpack

import pytest

from fedscope.errors import UserError, check_choices, check_keywords, no_file, shortened, suggestion


def test_the_nearest_known_name_is_suggested() -> None:
    assert suggestion("fedavgg", ["man", "fedavg", "feddyn"]) == "; did you mean 'fedavg'?"
    assert suggestion("FedAvg", ["fedavg"]) == suggestion("fedavg", ["FedAvg"]).lower()
    assert (
        suggestion("man/t1", ["fedalign/t1", "man/t1/cifar100/iid"])
        == "; did you mean 'man/t1/cifar100/iid'?"
    )
    assert suggestion("resnet", iter(["ResNet20"])) == "; did you mean 'ResNet20'?"


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggestion("scaffold", ["man", "fedavg"]) == ""
    assert suggestion("", ["man"]) == ""
    assert suggestion("man", []) == ""


def test_neither_case_counts() -> None:
    assert suggestion("FEDAVGG", ["fedprox", "fedavg"]) == "; did you mean 'fedavg'?"
    assert suggestion("gru", ["GRUs"]) == "; did you mean 'GRUs'?"


def test_what_another_program_says_is_one_line_of_whole_words() -> None:
    assert shortened(ValueError("no\n such  file")) == "no such file"
    assert shortened("one two three", 9) == "one two …"
    assert shortened("one two three", 8) == "one …"


class Further(TypedDict, total=False):
    split: Literal["train", "test"]
    samples: int | Literal["all"] | None
    name: str | Literal["none"]


def measured(kind: Literal["a", "b"] | None = "a", **on: Unpack[Further]) -> None:
    """Take what the checks below are of."""


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ({"splitt": "train"}, {}, r"measured takes no 'splitt'; did you mean 'split'\?"),
        ({"kid": 1}, {}, r"did you mean 'kind'\?"),
        ({"split": "tset"}, {}, r"split is 'tset'; choose one of train, test; did you mean 'test'\?"),
        ({"samples": "some"}, {}, "samples is 'some'; choose one of all"),
        ({}, {"kind": "c"}, "kind is 'c'; choose one of a, b"),
    ],
)
def test_keywords_and_choices_that_are_not_there_are_refused(
    given: dict[str, object], named: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_keywords(measured, given, Further, **named)


def test_other_values_of_keywords_are_left_alone() -> None:
    check_keywords(measured, {"split": "test", "samples": 3, "name": "x"}, Further, kind=None)


def test_the_choices_of_a_class_are_those_of_its_fields() -> None:
    check_choices(Further, split="test", name="anything")
    with pytest.raises(UserError, match="split is 'x'; choose one of train, test"):
        check_choices(Further, split="x")


def test_of_a_missing_file_the_nearest_of_its_kind_is_named(tmp_path: Path) -> None:
    for name in ("curvature.json", "planes.json", "plane.png"):
        (tmp_path / name).touch()
    assert str(no_file(tmp_path / "plane.json")).endswith("plane.json; did you mean 'planes.json'?")
    for name in ("nothing.json", "nothing", "nowhere/plane.json"):
        path = tmp_path / name
        said = f"no such file: {path}; {path.parent} holds none of that name, give its path"
        assert str(no_file(path)) == said
