"""Each setting that a quantity says it is measured with reaches the library's function: one table of all."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from fedscope.workflows.progress import SILENT
from fedscope.workflows.sharpness import quantities
from fedscope.workflows.sharpness.quantities import Quantities
from fedscope.workflows.sharpness.sharpness_request import QUANTITIES, SharpnessRequest
from tests.workflows.sharpness.test_measure_sharpness import own_problem

OTHER: dict[str, Any] = {
    "bn": "batch", "rho": 0.3, "m": 10, "steps": 3, "reading": "code", "pairs": 6, "normalize_logits": True,
    "target": 0.3, "layer": "0.weight",
}  # fmt: skip
LIBRARY = (
    "worst_case_sharpness", "average_sharpness", "low_pass_loss", "pac_bayes_sigma", "fisher_rao_norm",
    "Hessian",
)  # fmt: skip


def settings(name: str) -> set[str]:
    problem = own_problem()
    found = set(Quantities(problem, problem.batches, SharpnessRequest()).settings(name))
    return found - {"search"}  # which the reading decides


TABLE = [(name, setting) for name in QUANTITIES for setting in sorted(settings(name))]


class Called(Exception):
    """The library was called."""


@pytest.mark.parametrize(("name", "setting"), TABLE)
def test_a_setting_reaches_the_library(name: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = own_problem(), []

    def called(function: str) -> Any:
        def call(*given: Any, **named: Any) -> None:
            calls.append((function, given, {k: v for k, v in named.items() if k != "progress"}))
            raise Called

        return call

    for function in LIBRARY:
        monkeypatch.setattr(quantities, function, called(function))
    for request in (SharpnessRequest(), SharpnessRequest(**{setting: OTHER[setting]})):
        with SILENT.stage("") as progress, pytest.raises(Called):
            Quantities(problem, problem.batches, request).entry(name, progress)
    assert repr(calls[0]) != repr(calls[1])


def test_every_option_of_the_request_is_a_setting_of_some_quantity() -> None:
    known = {setting for _, setting in TABLE}
    fields = {field.name for field in dataclasses.fields(SharpnessRequest)}
    assert fields - {"only", "gap", "versions"} == known == OTHER.keys()


def test_the_page_has_the_radii_that_are_taken_where_none_is_given() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "sharpness.md"
    rows = re.findall(r"^\| (0\.\d+) \| (`.*`) \|$", page.read_text("utf-8"), re.MULTILINE)
    told = {name: float(rho) for rho, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: one.rho for name, one in QUANTITIES.items() if one.rho}
