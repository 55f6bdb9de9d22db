"""Readings of a table: which there are, what they are called, and what is measured for each."""

import pytest

from fedscope.reproduce.recipes.measures import Measure
from studies.readings.reading import Reading, Readings, label
from studies.readings.readings_recipe import measured_cells, readings_recipe

TEMPLATE = Measure("hessian", tol=0.03, probes=4)
ERRORS = {"training_spread": {}, "growth_spread": 0.1, "correlation": 0.5, "common": {}, "dof": 4}


def readings(*combine: dict[str, object], **base: object) -> Readings:
    return Readings.from_table({"of": "table2", "base": base, "combine": list(combine)}, ERRORS)


def test_a_table_of_lists_stands_for_all_combinations_each_once() -> None:
    found = readings(
        {"split": ["train", "test"], "samples": [32, "all"]}, {"split": "test", "samples": 32}, samples=64
    )
    assert [(one.split, one.samples) for one in found.every] == [
        ("train", 32), ("train", None), ("test", 32), ("test", None),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no colour"):
        readings({"colour": 1})


def test_a_name_has_what_is_unusual() -> None:
    assert Reading(samples=4096).name == "train, server, 4,096 samples"
    whole = Reading("test", "reported", None, "pyhessian", augment=True, term=True, weight_decay=True)
    assert whole.name == (
        "test, all clients, all samples, PyHessian, augmented, with MAN's term, with weight decay"
    )
    assert whole.value("samples") == "all"
    assert whole.value("augment") == "yes"


def test_each_draw_is_a_measure_and_weight_decay_is_none() -> None:
    one = Reading("test", samples=32, draws=2)
    first, second = one.measures(TEMPLATE, "fedavg")
    assert (first.draw, second.draw, first.split, first.samples, first.probes) == (0, 1, "test", 32, 4)
    decayed = Reading("test", samples=32, draws=2, weight_decay=True)
    assert decayed.measures(TEMPLATE, "fedavg") == (first, second)


def test_only_methods_with_man_have_its_term() -> None:
    one = Reading(term=True)
    assert one.measures(TEMPLATE, "feddyn+man")[0].term
    assert one.measures(TEMPLATE, "feddyn") == Reading().measures(TEMPLATE, "feddyn")


def test_other_estimators_have_their_own_stopping_rules() -> None:
    (theirs,) = Reading("test", samples=64, estimator="pyhessian").measures(TEMPLATE, "fedavg")
    assert (theirs.engine, theirs.probes, theirs.tol, theirs.split) == ("pyhessian", None, 1e-3, "test")
    (script,) = Reading(samples=50, estimator="published", augment=True).measures(TEMPLATE, "fedavg")
    assert (script.reading, script.batch_size, script.product_batches) == ("code", 50, 1)


def test_every_measure_of_a_recipe_has_a_label_of_its_own() -> None:
    one = readings_recipe("cpu")
    every = {
        wanted for reading in one.readings.every
        for wanted in reading.measures(one.measures["reading"], "fedavg+man")
    }  # fmt: skip
    assert len({label(wanted) for wanted in every}) == len(every)
    assert one.readings.base in one.readings.every
    assert len({reading.name for reading in one.readings.every}) == len(one.readings.every)


def test_an_early_column_of_the_server_has_its_readings_alone() -> None:
    found = measured_cells(readings_recipe("cpu"))
    early = [cell for cell in found if cell.column.endswith("server")]
    early_rows = readings_recipe("cpu").columns["δ = 0.3, round 150, server"].rows or ()
    assert {cell.row for cell in early} == set(early_rows)
    assert {wanted.model for cell in early for wanted in cell.measures.values()} == {"server"}
    others = {wanted.model for cell in found for wanted in cell.measures.values()}
    assert others == {"server", "reported"}
