"""The search of lost settings on made-up curves: the true one is found, a short one says nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest
from scipy.stats import f as f_distribution
from scipy.stats import multivariate_t

from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.run_cells import Choices, RunCell, cells
from fedscope.reproduce.recipes.spec import table
from studies.settings.likely_settings import between, grid_of, search_of
from studies.settings.search import SearchRecipe, search_recipe
from studies.settings.search_record import SearchRecord, SearchResult

WHOLE = search_recipe()
COLUMN, HALF, FULL = "column 1", 39.85, 45.97  # FedAvg's of Table 2
FEDFOR_FULL = 48.06
TRUTH = 200  # rounds of the made-up training that the print is of


def curve(half: float, full: float, rounds: int, *, end: int = 400) -> list[float]:
    """Accuracies that rise with the logarithm of the round, through two given ones."""
    slope = (full - half) / math.log(2)
    return [max(1.0, full + slope * math.log(t / rounds)) / 100 for t in range(1, end + 1)]


@dataclass(frozen=True)
class Round:
    accuracy: float | None


@dataclass(frozen=True)
class Stub:
    """What the search reads of a filled cell."""

    cell: RunCell
    metrics: list[Round]


def found(
    curves: Mapping[tuple[str, str], list[float]], one: SearchRecipe = WHOLE, seeds: tuple[int, ...] = (1,)
) -> SearchRecord:
    """The search with a curve for some cells, by column and row."""
    filled = [
        Stub(cell, [Round(a) for a in curves[cell.column, cell.row]])
        for cell in cells(one, Choices(seeds=seeds))
        if (cell.column, cell.row) in curves
    ]
    return SearchRecord.read(search_of(one, cast("list[FilledCell]", filled)))


def of(record: SearchRecord, column: str = COLUMN) -> dict[str, SearchResult]:
    return {one.candidate: one for one in record.results if one.column == column}


def test_the_rounds_of_the_print_are_found_on_its_own_curve() -> None:
    one = of(found({("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH)}))["E = 1"]
    assert abs(one.rounds - TRUTH) <= 4  # the prior leans to fewer
    assert one.low < TRUTH < one.high
    assert one.share is None  # the only one
    assert not one.short
    assert one.p > 0.9
    assert [(e.quantity, e.printed) for e in one.entries] == [
        ("best_half_accuracy", HALF), ("best_accuracy", FULL),
    ]  # fmt: skip
    assert one.entries[1].expected == pytest.approx(FULL, abs=0.2)


def test_posterior_and_p_are_those_of_a_direct_computation() -> None:
    """By scipy's multivariate t, over the best of the rounds so far, with a prior of 1/T."""
    rng = np.random.default_rng(0)
    accuracies = [a + float(rng.normal(0, 0.01)) for a in curve(HALF, FULL, 40, end=60)]
    record = found({("E = 1", "FedAvg"): accuracies})
    one = of(record)["E = 1"]
    a, b = record.spread["best_half_accuracy"], record.spread["best_accuracy"]
    shape = (1 / 3 + 1) * np.array([[a * a, 0.5 * a * b], [0.5 * a * b, b * b]])
    likelihood = multivariate_t(np.zeros(2), shape, df=4)
    logs = {}
    for rounds in range(2, 61):
        best = [100 * max(accuracies[: rounds // 2]), 100 * max(accuracies[:rounds])]
        y = np.log([HALF / best[0], FULL / best[1]])
        logs[rounds] = (likelihood.logpdf(y) - math.log(rounds), y @ np.linalg.inv(shape) @ y)
    weights = np.exp([log for log, _ in logs.values()])
    assert one.rounds == max(logs, key=lambda rounds: logs[rounds][0])
    assert one.log_evidence == pytest.approx(math.log(weights.sum()))
    below = np.cumsum(weights) / weights.sum()
    assert (one.low, one.high) == (2 + int((below < 0.025).sum()), 2 + int((below < 0.975).sum()))
    assert one.p == pytest.approx(f_distribution.sf(logs[one.rounds][1], 1, 4))  # of two numbers, T is fitted


def test_the_curve_with_the_printed_slope_is_the_likelier() -> None:
    every = of(found({
        ("E = 2", "FedAvg"): curve(FULL - 14, FULL, TRUTH),
        ("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH),
    }))  # fmt: skip
    shares = {name: one.share or 0.0 for name, one in every.items()}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["E = 1"] > 0.9
    assert list(every) == ["E = 1", "E = 2"]  # the likeliest first
    assert every["E = 2"].p < 0.1 < every["E = 1"].p


def test_a_training_that_ends_below_says_nothing() -> None:
    short = curve(HALF, FULL, TRUTH, end=60)
    every = of(found({("E = 1", "FedAvg"): short, ("E = 2", "FedAvg"): curve(HALF, FULL, TRUTH)}))
    assert every["E = 1"].short
    assert every["E = 1"].share is None
    assert every["E = 1"].rounds == 60
    assert every["E = 1"].entries[1].expected == pytest.approx(100 * short[-1])
    assert every["E = 2"].share is None
    assert list(every) == ["E = 2", "E = 1"]


def test_a_training_that_ends_within_the_error_counts() -> None:
    one = of(found({("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH, end=195)}))["E = 1"]
    assert not one.short
    assert one.high == one.end == 195
    assert between(one.low, one.high, one.end).endswith(" to ≥ 195")


def test_rows_that_stand_for_one_printed_row_are_candidates_of_their_own() -> None:
    fedavg = curve(HALF, FULL, TRUTH)
    every = of(found({
        ("E = 1", "FedAvg"): fedavg,
        ("E = 1", "FedFOR α = 0.03"): [a + 0.001 for a in fedavg],
        ("E = 1", "FedFOR α = 0.1"): curve(41.93, FEDFOR_FULL, TRUTH),
    }))  # fmt: skip
    assert list(every) == ["E = 1, FedFOR α = 0.1", "E = 1, FedFOR α = 0.03"]
    best = every["E = 1, FedFOR α = 0.1"]
    assert {e.row for e in best.entries} == {"FedAvg", "FedFOR"}
    assert (best.share or 0) > 0.7


def test_methods_that_share_a_seed_count_for_less_than_two_that_do_not() -> None:
    """A level that both methods have too high is one accident if a seed decides for both."""
    levels = {"FedAvg": (HALF, FULL), "FedFOR α = 0.1": (41.93, FEDFOR_FULL)}
    high = {
        ("E = 1", row): [1.04 * (half if t < TRUTH else full) / 100 for t in range(1, 2 * TRUTH)]
        for row, (half, full) in levels.items()
    }

    def p(common: float) -> float:
        search = replace(WHOLE.search, common=common)
        return of(found(high, replace(WHOLE, search=search)))["E = 1"].p

    assert p(0.95) > p(0.0)


def test_only_methods_of_every_candidate_are_compared() -> None:
    every = of(found({
        ("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH),
        ("E = 1", "FedFOR α = 0.1"): curve(HALF, FULL, TRUTH),
        ("E = 2", "FedAvg"): curve(HALF, FULL, TRUTH),
    }))  # fmt: skip
    assert {e.row for one in every.values() for e in one.entries} == {"FedAvg"}


def test_more_seeds_narrow_the_rounds() -> None:
    own = {("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH)}
    one, three = (of(found(own, seeds=seeds))["E = 1"] for seeds in ((1,), (1, 2, 3)))
    assert three.high - three.low < one.high - one.low


def test_the_spread_is_that_of_the_printed_deviations() -> None:
    spread = found({("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH)}).spread
    wanted = ("table2", "best_accuracy")
    every = [one for (name, *_, q), one in table("fedfor").items() if (name, q) == wanted]
    relative = [(one.spread or 0) / (one.number or 1) for one in every]
    assert spread["best_accuracy"] == pytest.approx(np.sqrt(np.mean(np.square(relative))))


def test_nothing_trained_is_an_empty_search() -> None:
    assert found({}).results == ()


def test_a_round_without_an_accuracy_leaves_the_best_as_it_was() -> None:
    holed: list[float | None] = [*curve(HALF, FULL, TRUTH)]
    holed[199] = None
    whole = of(found({("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH)}))["E = 1"]
    other = of(found({("E = 1", "FedAvg"): cast("list[float]", holed)}))["E = 1"]
    assert abs(other.rounds - whole.rounds) <= 1


def test_the_table_shows_every_candidate_and_the_print() -> None:
    record = found({
        ("E = 1", "FedAvg"): curve(HALF, FULL, TRUTH),
        ("E = 2", "FedAvg"): curve(HALF, FULL, TRUTH, end=60),
    })  # fmt: skip
    grid = grid_of(record.to_json())
    assert grid["header"][:5] == ["printed", "candidate", "share", "rounds T", "p"]
    first, second = grid["rows"][:2]
    assert first[:3] == [COLUMN, "E = 1", "–"]
    one = of(record)["E = 1"]
    assert first[3] == f"{one.rounds} ({one.low} to {one.high})"
    assert second[:4] == [COLUMN, "E = 2", "–", "> 60"]
    assert first[-1].endswith("[45.97]")
