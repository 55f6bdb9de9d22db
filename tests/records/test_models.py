"""The typed records: of every committed result, with its JSON unchanged, and with NaN for null."""

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedscope.errors import UserError
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.saved_records import hessians, landscapes, read
from tests.figures.records import curvature, landscape

KEPT = Path(__file__).parents[2] / "checkpoints" / "papers" / ".analysis"


def committed() -> list[dict[str, object]]:
    found = [json.loads(path.read_text("utf-8"))["record"] for path in sorted(KEPT.glob("*.json"))]
    schemas = ("fedscope/hessian/1", "fedscope/landscape/1")
    return [record for record in found if record.get("schema") in schemas]


def test_every_committed_result_is_read_and_given_back_as_it_is() -> None:
    records = committed()
    assert len(records) > 20
    for record, found in zip(records, read(records, "the registry"), strict=True):
        assert found.checkpoint.sha256 == record["checkpoint"]["sha256"]  # type: ignore[index]
        assert json.dumps(found.to_json()) == json.dumps(record)


def test_null_is_nan_and_absent_is_what_it_meant() -> None:
    record = curvature()
    record["lambda_max"]["stderr_data"] = None
    del record["batch_sizes"]
    found = HessianRecord.read(record)
    assert math.isnan(found.lambda_max.stderr_data)
    assert found.batch_sizes == ()
    assert found.to_json() == record


def test_the_densities_of_committed_results_have_their_nodes() -> None:
    found = [
        record.density for record in read(committed(), "the registry") if isinstance(record, HessianRecord)
    ]
    densities = [density for density in found if density and density.nodes]
    assert len(densities) >= 4
    assert all(sum(row) == pytest.approx(1) for density in densities for row in density.weights)
    content = densities[0].to_json()
    for side in ("weights", "nodes"):  # one row fewer of either
        with pytest.raises(UserError, match="weights"):
            type(densities[0]).read({**content, side: content[side][:-1]})


def test_what_is_no_record_is_told_by_the_field() -> None:
    record = landscape()
    record["axes"][0]["values"] = ["a"]
    with pytest.raises(UserError, match=r"r\.json .*axes"):
        read(record, "r.json")


def test_no_record_at_all_is_refused() -> None:
    with pytest.raises(UserError, match=r"e.json holds no record of fedscope; give what --json wrote"):
        read([], "e.json")


def test_a_record_of_another_schema_is_told_what_makes_one() -> None:
    with pytest.raises(UserError, match=r"fedscope/landscape/1.*fedscope hessian --json"):
        hessians([curvature(), landscape()])
    with pytest.raises(UserError, match=r"fedscope/hessian/1.*fedscope plot-landscape --json"):
        landscapes([curvature()])


def test_a_record_is_frozen() -> None:
    found = HessianRecord.read(curvature())
    with pytest.raises(ValidationError):
        found.matvecs = 3  # type: ignore[misc]
