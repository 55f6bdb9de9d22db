"""Measurements that a recipe names, in words."""

import pytest

from fedscope.reproduce.recipes.measures import Measure


def test_a_summary_says_on_how_many_samples() -> None:
    assert Measure(kind="hessian", samples=4096).summary() == "hessian on 4,096 training samples"
    assert Measure(kind="hessian").summary() == "hessian on all training samples"
    few = Measure(kind="hessian", clients=True, samples=512, client_probes=16)
    assert few.summary() == "clients on up to 512 of their own samples, 16 probes each"
    assert Measure(kind="landscape", samples=512, grid=21).summary().endswith(", 21 × 21 points")


def test_a_measure_is_of_one_eigenvalue_unless_it_says_more() -> None:
    assert Measure.from_table({"kind": "hessian", "samples": "all"}) == Measure(kind="hessian")
    assert Measure(kind="hessian").top_k == 1


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="sample, top"):
        Measure.from_table({"kind": "hessian", "top": 3, "sample": 3})
