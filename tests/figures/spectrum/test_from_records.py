from typing import Any

import numpy as np
import pytest

from fedscope.errors import UserError
from fedscope.figures.spectrum.hessian_figures import draw
from fedscope.records.hessian_record import HessianRecord
from tests.figures.cases import crossing, eigenvalues, spectrum


def _record(**more: Any) -> HessianRecord:
    record = {
        "schema": "fedscope/hessian/1",
        "checkpoint": {"path": "a.pt", "run": "a", "round": 5, "client": None, "sha256": "0" * 64},
        "problem": {"method": "fedavg", "samples": 1024},
        "lambda_max": {"value": 50.0, "residual": 0.0, "stderr_data": 1.0},
        "eigenvalues": [one.to_json() for one in eigenvalues(4)],
        "both_ends": False,
        "trace": {"value": 500.0, "stderr_probe": 3.0, "stderr_data": 4.0},
        "density": spectrum(),
        "cross_client": crossing(4),
        **more,
    }
    return HessianRecord.read(record)


def test_each_kind_draws_its_part() -> None:
    records = [_record(), _record(problem={"method": "moon", "samples": 1024})]
    assert [axes.get_ylabel() for axes in draw(records, "density").axes] == ["density"]
    assert [axes.get_ylabel() for axes in draw(records, "eigenvalues").axes] == ["eigenvalue"]
    assert sum(axes.get_xlabel() == "client" for axes in draw(records, "clients").axes) == 4
    bars = draw(records, "bars")
    assert [text.get_text() for text in bars.axes[1].get_xticklabels()] == ["FedAvg", "MOON"]
    assert any("samples" in text.get_text() for text in bars.texts)


def test_of_one_record_the_bars_are_its_clients() -> None:
    (axes,) = draw([_record()], "bars").axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("trace", "client")
    alone = draw([_record(cross_client=None)], "bars")
    assert len(alone.axes) == 2


def test_records_of_one_runs_clients_are_named_by_number() -> None:
    checkpoints = [{"path": "c.pt", "run": "a", "round": 5, "client": i, "sha256": "0"} for i in (0, 3)]
    figure = draw([_record(checkpoint=one, cross_client=None) for one in checkpoints], "bars")
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["0", "3"]
    assert figure.axes[1].get_xlabel() == "client"


def test_both_ends_are_split() -> None:
    below = [{"value": -value, "residual": 0.0, "stderr_data": None} for value in (0.1, 0.2)]
    above = [one.to_json() for one in eigenvalues(2)]
    found = draw([_record(eigenvalues=[*above, *below], both_ends=True)], "eigenvalues")
    assert np.ravel(found.axes[0].lines[1].get_ydata()).tolist() == [-0.2, -0.1]


def test_the_published_reading_has_matrices_of_tensors_only() -> None:
    entry = crossing(3)
    for symbol in ("H_N", "H_D"):
        entry[symbol]["parameter"] = entry["matrices"][symbol]["parameter"] = None
    assert (
        sum(axes.get_xlabel() == "client" for axes in draw([_record(cross_client=entry)], "clients").axes)
        == 2
    )


@pytest.mark.parametrize(("kind", "flag"), [("density", "--density"), ("clients", "--clients")])
def test_a_missing_part_names_its_option(kind: Any, flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        draw([_record(density=None, cross_client=None)], kind)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="no record"):
        draw([])
    with pytest.raises(UserError, match="not finite"):
        draw([_record(lambda_max={"value": None, "residual": None, "stderr_data": None})])
