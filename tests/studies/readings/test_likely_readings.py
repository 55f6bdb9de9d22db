"""Which reading is likely, from made-up results: growth, weight decay, and what is missing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from fedscope.records.hessian_record import HESSIAN_SCHEMA, HessianRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.run_cells import Choices, RunCell
from fedscope.reproduce.recipes.spec import printed
from studies.readings.likely_readings import readings_of
from studies.readings.reading import Reading
from studies.readings.readings_recipe import ReadingsRecipe, measured_cells, readings_recipe
from studies.readings.readings_record import ReadingResult, ReadingsResult
from studies.study import percent

WHOLE = readings_recipe("cpu")
GROWTH = {"lambda_max": 2.0, "trace": 1.8}
TRUTH = Reading("test", samples=1024)
PARAMETERS = 4_864 + 102_464 + 614_784 + 73_920 + 19_300  # of convnet_cifar, by layer


def only(*readings: Reading) -> ReadingsRecipe:
    """The recipe with few readings, the first of which is the base."""
    own = replace(WHOLE.readings, base=readings[0], every=readings)
    return replace(WHOLE, readings=own)


def paper(row: str, quantity: str) -> float:
    found = printed("man/table2", row, "δ = 0.3", quantity)
    assert found
    assert found.number
    return found.number


def record(lambda_max: float, trace: float, error: float = 0.01) -> HessianRecord:
    entry = {"value": lambda_max, "residual": 0.0, "stderr_data": error * lambda_max}
    return HessianRecord.read({
        "schema": HESSIAN_SCHEMA, "checkpoint": {"sha256": "ab"}, "problem": {"samples": 1},
        "lambda_max": entry, "eigenvalues": [entry], "density": None, "cross_client": None,
        "trace": {"value": trace, "stderr_probe": 0.01 * trace, "stderr_data": 0.0, "probes": 4},
    })  # fmt: skip


@dataclass(frozen=True)
class Stub:
    """What the inference reads of a filled cell."""

    cell: RunCell
    records: Mapping[str, HessianRecord] = field(default_factory=dict)

    @property
    def match(self) -> "Stub":
        return self

    @property
    def round(self) -> int:
        return self.cell.settings.rounds


def found(
    one: ReadingsRecipe,
    *,
    factor: float = 1.0,
    level: float = 1.0,
    seeds: tuple[int, ...] = (83217,),
    second: float | Mapping[str, float] = 1.0,
    wild: float = 0.01,
    rounds: int | None = None,
) -> ReadingsResult:
    """The inference where test samples give the printed numbers, and training samples ``factor`` of them.

    All are ``level`` times these; short runs stand before their growth. A second seed has 10 % more, a
    second draw ``second`` times as much, of each split or by split. ``wild`` is the error of FedAvg's λ_max.
    """
    filled, times = [], second if isinstance(second, Mapping) else dict.fromkeys(("train", "test"), second)
    for cell in measured_cells(one, Choices(seeds=seeds, rounds=rounds)):
        records = {}
        for name, wanted in cell.measures.items():
            values = {
                quantity: paper(cell.row, quantity) * level * (1.0 if wanted.split == "test" else factor)
                * (1.1 if cell.seed != 83217 else 1.0) * (times[wanted.split] if wanted.draw else 1.0)
                / (GROWTH[quantity] if cell.settings.rounds < 500 else 1.0)
                for quantity in GROWTH
            }  # fmt: skip
            records[name] = record(
                values["lambda_max"], values["trace"], wild if cell.row == "FedAvg" else 0.01
            )
        filled.append(Stub(cell, records))
    return ReadingsResult.read(readings_of(one, cast("list[FilledCell]", filled)))


def by_name(result: ReadingsResult, reading: Reading) -> ReadingResult:
    return next(one for one in result.results if one.name == reading.name)


def test_the_reading_that_was_printed_has_the_share() -> None:
    result = found(only(Reading(samples=1024), TRUTH), factor=0.7)
    first, second = result.results
    assert first.name == TRUTH.name
    assert first.share > 0.9
    assert first.log_likelihood == 0 > second.log_likelihood
    assert first.factors == pytest.approx({"lambda_max": 1, "trace": 1})
    assert second.factors == pytest.approx({"lambda_max": 1 / 0.7, "trace": 1 / 0.7})
    assert second.residual == pytest.approx(0, abs=1e-9)  # the ratios between methods are as printed
    assert second.ratios_only == pytest.approx(0, abs=1e-9)
    shares = {one.value: one.share for one in result.axes if one.axis == "split"}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["test"] == first.share
    assert {one.best for one in result.sensitivities} == {TRUTH.name}


def test_short_runs_are_brought_to_the_last_round() -> None:
    result = found(only(TRUTH))
    entries = {(one.row, one.quantity): one for one in result.results[0].entries}
    assert len(entries) == 16
    assert (entries["FedAvg", "trace"].growth, entries["FedAvg", "trace"].round) == (1.0, 500)
    short = entries["FedDC", "lambda_max"]
    assert short.round == 150
    assert short.growth == pytest.approx(2.0)
    assert short.expected == pytest.approx(35.13)
    assert short.measured == pytest.approx(35.13 / 2)
    assert result.grown_on == WHOLE.columns["δ = 0.3, round 150, server"].rows
    assert result.growth == pytest.approx(GROWTH)


def test_the_mean_of_all_clients_grows_as_the_servers_model() -> None:
    result = found(only(TRUTH, replace(TRUTH, model="reported")))
    entries = by_name(result, replace(TRUTH, model="reported")).entries
    assert {round(one.growth, 6) for one in entries if one.round == 150} == {1.8, 2.0}


def test_weight_decay_is_added_after_the_growth() -> None:
    decayed = replace(TRUTH, weight_decay=True)
    result = found(only(TRUTH, decayed))
    plain, more = by_name(result, TRUTH).entries, by_name(result, decayed).entries
    for before, after in zip(plain, more, strict=True):
        added = after.expected - before.expected
        assert added == pytest.approx(
            1e-3 if before.quantity == "lambda_max" else 1e-3 * PARAMETERS, rel=1e-6
        )


def test_a_reading_without_a_result_is_named() -> None:
    one = only(TRUTH, replace(TRUTH, samples=64))
    filled = [
        Stub(cell, {name: record(1.0, 1.0) for name, wanted in cell.measures.items() if wanted.samples != 64})
        for cell in measured_cells(one)
    ]
    result = ReadingsResult.read(readings_of(one, cast("list[FilledCell]", filled)))
    assert result.incomplete == (replace(TRUTH, samples=64).name,)
    assert [found.name for found in result.results] == [TRUTH.name]
    nothing = ReadingsResult.read(readings_of(one, []))
    assert nothing.results == ()
    assert len(nothing.incomplete) == 2


def test_the_spread_between_trainings_is_measured_where_there_are_seeds() -> None:
    stated = found(only(TRUTH))
    assert stated.spread_source == "stated"
    assert stated.training_spread["lambda_max"] == 0.06
    several = found(only(TRUTH), seeds=(83217, 1))
    assert several.spread_source.startswith("measured")
    assert several.training_spread == pytest.approx(dict.fromkeys(GROWTH, 0.0674), abs=1e-4)  # ln 1.1 / √2


def test_columns_that_match_one_run_at_one_round_are_one_training() -> None:
    result = found(only(TRUTH), rounds=150)
    assert result.spread_source == "stated"
    assert result.training_spread["lambda_max"] == 0.06
    assert len(result.results[0].entries) == 16
    both = found(only(TRUTH), rounds=150, seeds=(83217, 1))
    assert both.training_spread == pytest.approx(dict.fromkeys(GROWTH, 0.0674), abs=1e-4)


def spread(result: ReadingsResult, reading: Reading) -> object:
    return pytest.approx(by_name(result, reading).sampling_spread, abs=1e-4)


def test_the_spread_between_draws_falls_as_the_root_of_the_samples() -> None:
    several, more = replace(TRUTH, samples=64, draws=2), replace(TRUTH, samples=256, model="reported")
    theirs = replace(more, estimator="pyhessian")
    result = found(only(several, more, theirs), second=1.1)
    assert spread(result, several) == dict.fromkeys(GROWTH, 0.0674)  # ln 1.1 / √2
    assert spread(result, more) == dict.fromkeys(GROWTH, 0.0674 / 2)
    assert spread(result, theirs) == dict.fromkeys(GROWTH, 0.0674 / 2)


def test_it_is_pooled_over_the_draws_of_a_split() -> None:
    few, many = replace(TRUTH, samples=64, draws=2), replace(TRUTH, samples=256, draws=2)
    train = replace(few, split="train")
    # the same measurements again, the second with four new ones, of the methods with MAN
    again = replace(many, weight_decay=True), replace(many, term=True)
    readings = only(few, many, *again, train)
    result = found(readings, second={"test": 1.1, "train": 1.3})
    of_one = 0.0674 * math.sqrt((8 * 64 + 12 * 256) / 20)
    assert spread(result, few) == dict.fromkeys(GROWTH, of_one / 8)
    assert spread(result, many) == dict.fromkeys(GROWTH, of_one / 16)
    assert spread(result, train) == dict.fromkeys(GROWTH, 0.1855)  # ln 1.3 / √2
    elsewhere = found(only(few, replace(train, draws=1)), second=1.1)
    assert spread(elsewhere, replace(train, draws=1)) == dict.fromkeys(GROWTH, 0.0674)


def test_without_draws_it_is_the_usual_error_of_the_measurements() -> None:
    fewer = replace(TRUTH, samples=256)
    assert spread(found(only(TRUTH), wild=1.0), TRUTH) == dict.fromkeys(GROWTH, 0.01)
    result = found(only(TRUTH, fewer))
    of_one = 0.01 * (math.sqrt(1024) + math.sqrt(256)) / 2  # half of the errors are of each
    assert spread(result, TRUTH) == dict.fromkeys(GROWTH, of_one / 32)
    assert spread(result, fewer) == dict.fromkeys(GROWTH, of_one / 16)
    every = found(only(TRUTH, replace(TRUTH, samples=None)), wild=1.0)
    assert spread(every, TRUTH) == dict.fromkeys(GROWTH, 0.01)  # not by the measurement of all samples
    assert spread(every, replace(TRUTH, samples=None)) == dict.fromkeys(GROWTH, 0.01)


def test_all_samples_have_no_draw() -> None:
    several, every = replace(TRUTH, samples=64, draws=2), replace(TRUTH, samples=None)
    assert spread(found(only(several, every), second=1.1), every) == dict.fromkeys(GROWTH, 0.01)


def test_the_spread_between_draws_is_put_to_the_test() -> None:
    several = replace(TRUTH, samples=64, draws=2)
    result = found(only(replace(several, split="train"), several), factor=0.9, second=1.1)
    usual = {one.change: one.usual for one in result.sensitivities}
    half, twice = usual["half of the spread between draws"], usual["twice the spread between draws"]
    assert half > result.results[0].share > twice


def test_the_share_of_the_split_is_told_under_other_errors() -> None:
    result = found(only(TRUTH, replace(TRUTH, model="reported"), Reading(samples=1024)), factor=0.95)
    for one in result.sensitivities:
        assert one.usual == pytest.approx(one.split / 2)  # the two on test samples expect the same
    assert min(one.split for one in result.sensitivities) < 0.99  # the rest is of the training samples


def test_what_a_seed_gives_to_all_methods_is_put_to_the_test() -> None:
    """A common error of all methods counts less then: what fits all but its level gains."""
    result = found(only(Reading(samples=1024), TRUTH), factor=0.85)
    changes = {one.change: one for one in result.sensitivities}
    alike = changes["80 % of a training's variance common to all methods"]
    assert alike.usual != pytest.approx(result.results[0].share)
    assert alike.usual < result.results[0].share


def test_rows_in_doubt_are_left_out_once() -> None:
    one = only(TRUTH, Reading(samples=1024))
    assert one.readings.doubtful == ("FedDC", "FedDC+MAN")
    result = found(one, factor=0.7)
    (without,) = (s for s in result.sensitivities if s.change.startswith("without"))
    assert without.change == "without FedDC and FedDC+MAN"
    assert without.best == TRUTH.name
    assert 0.5 < without.share < result.results[0].share  # six methods tell less than eight


def test_without_rows_in_doubt_the_others_stand_alone() -> None:
    one = only(TRUTH, Reading(samples=1024))
    doubtful = ("FedSAM", "FedSAM+MAN")
    result = found(replace(one, readings=replace(one.readings, doubtful=doubtful)), factor=0.97, level=1.02)
    (without,) = (s for s in result.sensitivities if s.change.startswith("without"))
    rest = {row: method for row, method in one.rows.items() if row not in doubtful}
    alone = found(replace(one, rows=rest), factor=0.97, level=1.02)
    assert without.share == pytest.approx(alone.results[0].share)
    assert without.share != pytest.approx(result.results[0].share)


def test_percentages() -> None:
    assert [percent(one) for one in (0.0, 0.0002, 0.012, 0.5, 1.0)] == [
        "0.0 %",
        "< 0.1 %",
        "1.2 %",
        "50 %",
        "100 %",
    ]
