"""Every curve names a field of the diagnostics, and old rounds have none."""

from typing import Any, get_args

from fedscope.checkpoints.file.schema import Round
from fedscope.figures.figure_kinds import RunsKind
from fedscope.records.round_quantities import QUANTITIES

SPREAD = {"mean": 0.5, "least": 0.25, "most": 1.0}
DIAGNOSTICS: dict[str, Any] = {
    "updates": {
        "norms": [1.0, 2.0], "mean_norm": 1.5, "drift": 3.0, "diversity": 0.75, "pairs": SPREAD,
        "to_mean": SPREAD, "batchnorm": 0.125,
    },
    "server": {"step": 1.5, "cosine": 0.5, "distance": 4.0, "state": {"c": 2.0}, "memory": {"c_k": 3.0}},
    "local": {
        "before": [2.0, None], "first_epoch": [1.5, 1.25], "last_epoch": [1.0, 1.0], "clipped": 0.5,
        "ascent": {"rise": 0.25, "cosine": 0.75}, "noted": {"man.activations": {"relu": 0.5}},
    },
    "class_accuracy": [0.5, None, 0.25],
    "curvature": {
        "lambda_max": 5.0, "residual": 0.125, "trace": 50.0, "trace_stderr": 2.0, "samples": 64,
        "products": 9,
    },
}  # fmt: skip


def test_every_quantity_is_found_in_a_round_that_has_all() -> None:
    round = Round.read({"round": 1, "clients": [0, 1], "diagnostics": DIAGNOSTICS})
    found = {one.name: one.at(round) for one in QUANTITIES}
    assert found == {
        "drift": 3, "diversity": 0.75, "pair_cosine": 0.5, "mean_cosine": 0.5, "step": 1.5,
        "step_cosine": 0.5, "distance": 4, "batchnorm": 0.125, "clipped": 0.5, "rise": 0.25,
        "ascent_cosine": 0.75, "worst_class": 0.25, "lambda_max": 5, "trace": 50,
    }  # fmt: skip


def test_a_round_that_recorded_less_has_less() -> None:
    assert {one.at(Round(round=1)) for one in QUANTITIES} == {None}
    bare = {**DIAGNOSTICS, "curvature": None, "class_accuracy": []}
    bare["updates"] = {**DIAGNOSTICS["updates"], "pairs": None, "drift": None}
    round = Round.read({"round": 1, "diagnostics": bare})
    missing = [one.name for one in QUANTITIES if one.at(round) is None]
    assert missing == ["drift", "pair_cosine", "worst_class", "lambda_max", "trace"]


def test_every_family_has_a_kind_of_figure() -> None:
    assert {one.family for one in QUANTITIES} <= set(get_args(RunsKind))
    assert len({one.name for one in QUANTITIES}) == len({one.axis for one in QUANTITIES}) == len(QUANTITIES)


def test_texts_have_no_tex_and_axes_no_unit_of_weights() -> None:
    for one in QUANTITIES:
        assert not any(sign in one.meaning for sign in ("_k", "_t", "_0", "{", "}"))
        assert "[" not in one.axis
