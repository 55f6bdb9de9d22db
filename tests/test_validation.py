"""What is wrong with a record, in words: no sentence of pydantic's reaches a user."""

import pytest

from fedscope.checkpoints.file.fields import OPTION, parse
from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError
from fedscope.records.saved_records import read

TIME = "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("field", "value", "takes"),
    [
        ("rounds", 0, "a whole number from 1 up, not 0"),
        ("batch_size", 2.5, "a whole number from 1 up, not 2.5"),
        ("lr", float("nan"), "a number from 0 up, not nan"),
        ("participation", 1.5, "a number above 0 and up to 1, not 1.5"),
        ("momentum", 1, "a number from 0 and below 1, not 1"),
        ("clip", 0, "a number above 0, not 0"),
        ("nesterov", "maybe", "true or false, not 'maybe'"),
        ("precision", "fp16", "one of fp32, bf16, not 'fp16'"),
        ("method", 3, "a text, not 3"),
    ],
)
def test_a_field_its_range_and_its_value(field: str, value: object, takes: str) -> None:
    with pytest.raises(UserError) as option:
        parse(Settings, {field: value}, OPTION)
    assert str(option.value) == f"--{field.replace('_', '-')} takes {takes}"
    with pytest.raises(UserError) as file:
        parse(Settings, {field: value}, "a/manifest.json")
    assert str(file.value) == f"a/manifest.json: {field} takes {takes}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "m: name is missing"),
        (
            {"nmae": "a"},
            "m: nmae is no field of it; did you mean 'name'?",
        ),  # rather than that name is missing
        (3, "m: it takes a table of fields, not 3"),
        ({"name": ".."}, "m: name: '..' is no run name"),
        ({"name": "a", "created": "~ soon"}, "m: created: '~ soon' is no time"),
        ({"name": "a", "created": "2026-13-01T00:00:00+00:00"}, "m: created: month must be"),
        ({"name": "a", "created": "2026-01-01T00:00:00"}, "m: created: '2026-01-01T00:00:00' is no time"),
        (
            {"name": "a", "created": TIME, "settings": {"round": 3}},
            "m: settings.round is no field of it; did you",
        ),
        (
            {"name": "a", "created": TIME, "settings": {"seed": -1}},
            "m: settings.seed takes a whole number from 0",
        ),
    ],
)
def test_a_file(content: object, message: str) -> None:
    with pytest.raises(UserError) as told:
        parse(Manifest, content, "m")
    assert str(told.value).startswith(message)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (3, "it takes a table of fields, not 3"),
        ({}, "it has no schema"),
        (
            {"schema": "x"},
            "its schema is 'x', not one of 'fedscope/hessian/1', 'fedscope/landscape/1', "
            "'fedscope/clients/1'",
        ),
        ({"schema": "fedscope/hessian/1"}, "checkpoint is missing"),
        ({"schema": "fedscope/hessian/1", "checkpoint": 3}, "checkpoint takes a table of fields, not 3"),
    ],
)
def test_a_record_of_an_analysis(record: object, why: str) -> None:
    with pytest.raises(UserError, match=f"r.json is no record of .*: {why}$"):
        read(record, "r.json")
