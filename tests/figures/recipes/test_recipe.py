"""Every recipe at every scale is whole: presets, methods, measures, claims and published cells exist."""

import csv
from pathlib import Path

import pytest

from fedscope.errors import UserError
from fedscope.federated.presets import presets
from fedscope.figures.recipes.cells import Choices, cells, rows
from fedscope.figures.recipes.claims import Statement
from fedscope.figures.recipes.published import printed, table
from fedscope.figures.recipes.quantities import QUANTITIES
from fedscope.figures.recipes.recipe import SCALES, names, recipe

WITH_RUNS = [name for name in names() if recipe(name).columns]
PAPERS = {"fedalign": range(1, 8), "man": range(1, 4), "fedfor": range(1, 6)}


def test_every_artefact_of_the_papers_has_a_recipe() -> None:
    tables = {f"{paper}/table{number}" for paper, numbers in PAPERS.items() for number in numbers}
    figures = {"fedalign/figure1", "man/figure1", "man/figure2", "man/figure3", "man/figure4a",
               "man/figure4b", "fedfor/figure3"}  # fmt: skip
    assert set(names()) == tables | figures


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", WITH_RUNS)
def test_every_cell_is_an_experiment(name: str, scale: str) -> None:
    one = recipe(name, scale)
    found = cells(one)
    assert found
    for cell in found:
        assert set(cell.quantities) <= set(QUANTITIES)
    if scale == "paper":
        assert not one.scale.why
        departures = {text for cell in found for text in cell.use.overridden}
        assert all(text.startswith(("method: fedalign is not", "fedfor.alpha")) for text in departures)
    else:
        assert one.scale.why


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


def test_what_the_user_narrows() -> None:
    one = recipe("man/table2", "cpu")
    found = cells(one, Choices(seeds=(5, 6), rows=("feddyn+man",), rounds=7))
    assert {(c.row, c.seed, c.settings.rounds) for c in found} == {("FedDyn+MAN", 5, 7), ("FedDyn+MAN", 6, 7)}
    assert any(text == "rounds 500 → 7" for text in found[0].use.overridden)
    with pytest.raises(UserError, match="no method 'feddin'"):
        rows(one, ("feddin",))


def test_unknown_names_are_said() -> None:
    with pytest.raises(UserError, match="did you mean 'man/table2'"):
        recipe("man/tabel2")
    with pytest.raises(UserError, match="unknown scale"):
        recipe("man/table2", "gpu")


NAMED = {
    "top_eigenvalue": "lambda_max", "acc": "best_accuracy", "lambda_max": "lambda_max_code",
    "H_T": "trace_code", "H_N": "H_N_code", "H_D": "H_D_code", "forward_flops": "macs",
    "stored_params": "parameters", "time_per_round": "seconds_per_round", "trace": "trace",
    "best_val_acc": "best_accuracy", "mean_best_val_acc": "shift_accuracy",
    "rounds_to_acc40": "rounds_to_target", "rounds_to_acc80": "rounds_to_target",
}  # fmt: skip


@pytest.mark.parametrize(("paper", "number"), [(p, n) for p, ns in PAPERS.items() for n in ns])
def test_published_numbers_are_those_of_the_papers(paper: str, number: int) -> None:
    """Cell by cell against the transcription of the papers, where it lies beside this repository."""
    path = _tables() / f"{paper}_table{number}.csv"
    source = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    ours = [one for (artefact, *_), one in table(paper).items() if artefact == f"table{number}"]
    theirs = [row for row in source if row.get("metric") or row.get("rounds_to_target") is not None]
    if not theirs:
        assert not ours  # symbols only
        return
    wanted = sorted((row["mean"] or row.get("inferred_mean", ""), row["std"] or row.get("inferred_std", ""))
                    for row in theirs)  # fmt: skip
    wanted += [(row["rounds_to_target"] or "500+", "") for row in theirs if "rounds_to_target" in row]
    assert sorted((one.value, one.std) for one in ours) == sorted(wanted)
    for row in theirs:
        for (artefact, label, column, quantity), one in table(paper).items():
            if artefact != f"table{number}" or not _is(row, label, column, quantity, paper):
                continue
            assert one.value == (row["mean"] or row.get("inferred_mean", ""))


def _is(row: dict[str, str], label: str, column: str, quantity: str, paper: str) -> bool:
    """Say whether a transcribed number is that cell's, by what the two have in common."""
    if paper == "fedfor":
        point = {"half": "best_half_accuracy"}.get(row["point"], NAMED[row["metric"]])
        backbone = "FedBN+" if row["backbone"] and row["method"] != "FedBN" else ""
        method = backbone + row["method"].replace("DYN", "Dyn")
        return (label, column, quantity) == (method, f"column {row['epoch_column']}", point)
    if paper == "man":
        place = {"cifar100": "CIFAR-100, ", "tinyimagenet": "Tiny-ImageNet, "}[row["dataset"]]
        place += f"δ = {row['dirichlet_delta']}" if row["dirichlet_delta"] else "iid"
        name = "accuracy" if row["metric"] == "acc" else NAMED[row["metric"]]
        return label == row["method"] and place.endswith(column) and quantity == name
    setting = row["setting"].replace("=", " = ").replace("alpha", "α").replace("homog", "homogeneous")
    named = {"base": "", "C = 64x0.25": "C = 64 × 0.25", "C = 64x0.25 (100)": "C = 64 × 0.25, 100 rounds",
             "C = 32x0.125 (50)": "C = 32 × 0.125, 50 rounds", "": "C = 16"}  # fmt: skip
    place = named.get(setting, setting)
    if row["source"] == "fedalign/table7":
        place = {"cifar10": "CIFAR-10, ", "imagenet200": "ImageNet-200, "}[row["dataset"]] + place
    method = row["method"].replace("(n=", " (n = ")
    return (label, column, quantity.removesuffix("_e8")) == (method, place, NAMED[row["metric"]])


def _tables() -> Path:
    folder = next((p / "shared/spec/paper_tables" for p in Path(__file__).resolve().parents
                   if (p / "shared/spec/paper_tables").is_dir()), None)  # fmt: skip
    if folder is None:
        pytest.skip("the papers' transcribed tables are not beside this repository")
    return folder


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
