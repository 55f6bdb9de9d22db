"""Measurements that a recipe names, in words."""

from dataclasses import asdict, fields

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


def test_a_new_field_renames_no_earlier_result() -> None:
    added = {"split", "draw", "engine", "augment", "normalisation", "term", "only"}
    usual = Measure("hessian", samples=4096, trace_rtol=0.02)
    assert set(usual.request()) == {one.name for one in fields(Measure)} - added
    assert all(asdict(usual)[name] == value for name, value in usual.request().items())
    assert Measure("hessian", split="test", draw=1).request().keys() - usual.request().keys() == {
        "split", "draw",
    }  # fmt: skip
