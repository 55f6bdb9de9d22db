"""Every recipe at every scale is whole: presets, methods, measures, claims and published cells exist."""

from dataclasses import replace

import pytest

from fedscope.errors import UserError
from fedscope.federated.setup.paper_presets import presets
from fedscope.reproduce.artefacts.claims import Statement
from fedscope.reproduce.artefacts.departures import left_out, reductions
from fedscope.reproduce.recipes.run_cells import Choices, cells, identity, rows
from fedscope.reproduce.recipes.spec import SCALES, Recipe, names, printed, recipe, table
from fedscope.reproduce.recipes.table_quantities import QUANTITIES
from tests.papers import read

WITH_RUNS = [name for name in names() if recipe(name).columns]
PAPERS = {"fedalign": range(1, 8), "man": range(1, 4), "fedfor": range(1, 6)}


def test_every_artefact_of_the_papers_has_a_recipe() -> None:
    tables = {f"{paper}/table{number}" for paper, numbers in PAPERS.items() for number in numbers}
    figures = {"fedalign/figure1", "man/figure1", "man/figure2", "man/figure3", "man/figure4a",
               "man/figure4b", "fedfor/figure3"}  # fmt: skip
    own = {
        "clients/table",
        "clients/figure",
        "clients/sharpness",
        "flatness/table",
        "flatness/curves",
        "flatness/surfaces",
        "fedasam/table",
        "fedasam/landscape",
        "fedgloss/table",
    }
    assert set(names()) == tables | figures | own


def check_cells(one: Recipe, *, tries: bool = False) -> None:
    """Assert that a recipe's cells are experiments; ``tries``: other settings than provisional ones."""
    found = cells(one)
    assert found
    for cell in found:
        assert set(cell.quantities) <= set(QUANTITIES)
    if one.scale.name == "paper":
        assert not one.scale.why
        departures = {text for cell in found for text in cell.use.overridden}
        if tries:  # what no source gives, and changes nothing else
            departures = {text for text in departures if " (provisional) → " not in text}
        assert all(
            text.startswith(("method: ", "fedfor.alpha", "gloss.warmup", "swa.start")) for text in departures
        )
    else:
        assert one.scale.why


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", WITH_RUNS)
def test_every_cell_is_an_experiment(name: str, scale: str) -> None:
    check_cells(recipe(name, scale))


@pytest.mark.parametrize("name", names())
def test_every_claim_is_a_statement_of_rows_that_exist(name: str) -> None:
    one = recipe(name)
    for text in one.claims:
        statement = Statement.read(text)
        assert {statement.row, statement.other or statement.row} <= set(one.rows)
        assert statement.quantity in one.quantities or any(
            statement.quantity in (column.quantities or ()) for column in one.columns.values()
        )


@pytest.mark.parametrize("paper", PAPERS)
def test_every_published_number_has_its_cell(paper: str) -> None:
    for (artefact, row, column, quantity), number in table(paper).items():
        one = recipe(f"{paper}/{artefact}")
        assert row in one.rows
        assert quantity in one.shows(column)
        assert number.value or number.note
        assert not number.inferred or number.note


def test_columns_of_a_scale_stand_beside_published_ones() -> None:
    for name in WITH_RUNS:
        whole = recipe(name)
        for scale in ("cpu", "smoke"):
            for label, column in recipe(name, scale).columns.items():
                assert (column.published or label) in whole.columns
                assert column.preset in presets()


def test_a_run_stands_for_the_same_experiment_under_any_preset() -> None:
    first = next(
        c for c in cells(recipe("man/table1")) if c.row == "FedDyn" and "CIFAR-100, δ = 0.3" in c.column
    )
    second = next(c for c in cells(recipe("man/table2")) if c.row == "FedDyn" and c.column == "δ = 0.3")
    assert first.identity == second.identity
    other = next(c for c in cells(recipe("man/table2")) if c.row == "FedDyn" and c.column == "δ = 0.6")
    assert other.identity != second.identity


def test_a_run_from_before_its_method_had_an_option_is_of_the_same_experiment() -> None:
    (now,) = (c for c in cells(recipe("flatness/table", "cpu")) if c.row == "FedASAM+SWA")
    assert now.settings.options["swa.cycle"] == 1
    old = {
        name: value for name, value in now.settings.options.items() if name.split(".")[1] in ("rho", "start")
    }
    assert identity(now.settings.model_copy(update={"options": old})) == now.identity
    other = {**now.settings.options, "swa.cycle": 2}
    assert identity(now.settings.model_copy(update={"options": other})) != now.identity
    unknown = now.settings.model_copy(update={"method": "somebody's"})
    assert identity(unknown) != now.identity


def test_what_the_user_narrows() -> None:
    one = recipe("man/table2", "cpu")
    found = cells(one, Choices(seeds=(5, 6), rows=("feddyn+man",), rounds=7))
    assert {(c.row, c.seed, c.settings.rounds) for c in found} == {("FedDyn+MAN", 5, 7), ("FedDyn+MAN", 6, 7)}
    assert any(text == "rounds 500 → 7" for text in found[0].use.overridden)
    with pytest.raises(UserError, match="no method 'feddin'"):
        rows(one, ("feddin",))


def test_rounds_cut_and_never_lengthen() -> None:
    one = recipe("man/table2", "cpu")
    assert {(c.column, c.settings.rounds) for c in cells(one, Choices(rounds=300))} == {
        ("δ = 0.3", 300), *((column, 150) for column in one.columns if column != "δ = 0.3")
    }  # fmt: skip
    smoke = recipe("man/table2", "smoke")
    assert cells(smoke, Choices(rounds=40)) == cells(smoke)


def test_a_column_may_have_seeds_of_its_own() -> None:
    one = recipe("man/table2", "cpu")
    own = replace(one.columns["δ = 0.3"], seeds=(1, 2))
    found = cells(replace(one, columns={**one.columns, "δ = 0.3": own}))
    first = [cell for cell in found if cell.column == "δ = 0.3"]
    others = [cell for cell in found if cell.column != "δ = 0.3" and cell.row == "FedSAM"]
    assert {cell.seed for cell in first} == {1, 2}
    assert {cell.seed for cell in others} == {83217}


def test_a_row_of_a_column_may_have_seeds_of_its_own() -> None:
    one = recipe("man/table2", "cpu")
    rows = ("FedAvg", "FedAvg+MAN")
    own = replace(one.columns["δ = 0.3"], rows=rows, seeds={"FedAvg": (83217, 43217)})
    found = cells(replace(one, columns={"δ = 0.3": own}))
    assert {(cell.row, cell.seed) for cell in found} == {
        ("FedAvg", 83217), ("FedAvg", 43217), ("FedAvg+MAN", 83217),
    }  # fmt: skip
    assert left_out(one, found)[-2:] == [
        "1 of 3 seeds (FedAvg+MAN)",
        "2 of 3 seeds (FedAvg)",
    ]


def test_a_departure_names_its_columns_where_it_is_not_everywhere() -> None:
    one = recipe("man/table2", "cpu")
    assert "rounds 500 → 150 (δ = 0.3, round 150)" in reductions(one, cells(one), [])


def test_unknown_names_are_said() -> None:
    with pytest.raises(UserError, match="'man/table2'"):
        recipe("man/tabel2")
    with pytest.raises(UserError, match="unknown scale"):
        recipe("man/table2", "gpu")


@pytest.mark.parametrize("paper", PAPERS)
def test_published_numbers_are_those_of_the_papers(paper: str) -> None:
    """Cell by cell against the transcription of the papers, with no cell more or less."""
    theirs = {
        (f"table{row['table']}", row["method"], row["setting"], row["quantity"]): (
            row["mean"], row["std"], row["inferred"] == "yes",
        )
        for row in read(paper)
    }  # fmt: skip
    assert {key: (one.value, one.std, one.inferred) for key, one in table(paper).items()} == theirs


def test_gaps_and_inferred_numbers_stay_marked() -> None:
    lost = printed("fedalign/table2", "FedAvg", "α = 0.1", "best_accuracy")
    assert lost is not None
    assert (lost.value, lost.number, lost.inferred) == ("", None, False)
    inferred = printed("fedalign/table2", "MOON", "α = 0.5", "best_accuracy")
    assert inferred is not None
    assert (inferred.value, inferred.inferred) == ("55.0", True)
    reached = printed("man/table1", "FedAvg", "CIFAR-100, iid", "rounds_to_target")
    assert reached is not None
    assert (reached.value, reached.number) == ("500+", None)


@pytest.mark.parametrize("name", names())
def test_a_borrowed_spread_is_of_a_column_with_several_seeds(name: str) -> None:
    for scale in SCALES:
        one = recipe(name, scale)
        if one.spread_of:
            source, column = one.spread_of
            other = recipe(source, scale)
            found = [(cell.row, cell.seed) for cell in cells(other) if cell.column == column]
            assert len(found) > len({row for row, _ in found})
            assert one.claims


def test_what_a_quantity_means_is_told_where_it_is_shown() -> None:
    told = {own: " ".join(recipe(f"clients/{own}").notes) for own in ("table", "figure", "sharpness")}
    assert {own for own, text in told.items() if "drift: " in text} == {"table", "figure"}
    assert {own for own, text in told.items() if "barrier: " in text} == {"table"}
    assert {own for own, text in told.items() if "test loss − training loss" in text} == {
        "figure",
        "sharpness",
    }
    assert {own for own, text in told.items() if "the statements" in text} == {"table"}
