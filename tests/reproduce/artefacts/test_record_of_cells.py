"""What a record says of runs that were made up: values, marks, reductions, and what is missing."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.federated.setup.paper_presets import preset
from fedscope.records.artefact import ArtefactRecord
from fedscope.records.entries import Record
from fedscope.reproduce.artefacts.departures import notes, of_some
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.artefacts.record_of_cells import assemble
from fedscope.reproduce.gallery.cell_texts import legend
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices, cells
from fedscope.reproduce.recipes.spec import recipe
from fedscope.reproduce.runs.inventory import Match, RunInventory
from tests.reproduce.recipes.test_table_quantities import compared
from tests.reproduce.runs.test_inventory import cell, held

COLUMN = "CIFAR-100, δ = 0.3"  # of MAN's Table 1
LISTED = ", ".join(map(str, preset("man/t2/delta0.3").seeds))


def record(root: Path, name: str, scale: str, *, partial: bool = False, **choices: object) -> Record:
    one = recipe(name, scale)
    wanted = cells(one, Choices(**choices))  # type: ignore[arg-type]
    inventory = RunInventory(RunRegistry(root))
    pairs = [(c, inventory.find(c, partial=partial)) for c in wanted]
    lost = [(c, run) for c, found in pairs if not found and (run := inventory.diverged(c))]
    filled = [FilledCell(c, found, root) for c, found in pairs if found]
    return assemble(one, wanted, filled, "command", lost).to_json()


def entry(found: Record, row: str, quantity: str) -> Record:
    """The row's entry in the first column that has the row."""
    return next(e for e in found["entries"] if (e["row"], e["quantity"]) == (row, quantity))


def test_seeds_give_mean_and_deviation(tmp_path: Path) -> None:
    for seed, accuracy in ((1, 0.50), (2, 0.52), (3, 0.57)):
        run = held(tmp_path, f"s{seed}", cell("FedAvg", "", "man/figure2"), seed=seed, rounds=500)
        run.write_metrics(
            Round(round=n, accuracy=accuracy if n > 40 else 0.1, seconds=1.0) for n in range(1, 501)
        )
    found = record(tmp_path, "man/table1", "cpu", seeds=(1, 2, 3), rows=("FedAvg",))
    mean = entry(found, "FedAvg", "accuracy")
    assert mean["value"] == pytest.approx(53)
    assert mean["std"] == pytest.approx(13**0.5)  # of 50, 52, 57
    assert mean["error"] == pytest.approx((13 / 3) ** 0.5)
    assert mean["differs"]  # from 40.90 ± 0.62: 12.1 is more than twice √(13/3 + 0.62²)
    reached = entry(found, "FedAvg", "rounds_to_target")
    assert (reached["value"], reached["each"]) == (41, [41, 41, 41])
    assert entry(found, "FedSAM", "accuracy")["value"] is None
    assert found["complete"]


def test_the_same_text_of_every_seed_is_said_once(tmp_path: Path) -> None:
    for seed in (1, 2):
        held(tmp_path, f"s{seed}", cell("FedAvg", "", "man/figure2"), seed=seed, rounds=500)
    found = record(tmp_path, "man/table1", "cpu", seeds=(1, 2), rows=("FedAvg",))
    assert entry(found, "FedAvg", "rounds_to_target")["text"] == "500+"


@pytest.mark.parametrize(
    ("file", "round", "evaluate_on", "names"),
    [
        ("all.pt", {}, "test", ["outcomes of reported"]),
        ("best.pt", {}, "test", []),  # the reported model was not kept
        ("all.pt", {"domains": {"photo": 0.5}}, "test", []),  # a mean over domains, not over samples
        ("all.pt", {}, "validation", []),
    ],
)  # fmt: skip
def test_accuracies_on_all_test_samples_are_paired(
    tmp_path: Path, file: str, round: dict[str, Any], evaluate_on: str, names: list[str]
) -> None:
    wanted = cell("FedAvg", "", "man/figure2")
    wanted = replace(
        wanted, quantities=("accuracy",),
        settings=wanted.settings.model_copy(update={"evaluate_on": evaluate_on, "eval_model": "all"}),
    )  # fmt: skip
    held(tmp_path, "run", wanted, file).write_metrics(
        Round(round=n, accuracy=0.5, seconds=1.0, **round) for n in range(1, wanted.settings.rounds + 1)
    )
    (run,) = RunInventory(RunRegistry(tmp_path)).runs[wanted.identity]
    assert list(FilledCell(wanted, Match(run, wanted.settings.rounds), tmp_path).measures) == names


def test_errors_of_clients_that_are_not_known_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record from before errors over the clients' rows were measured has those of the probes alone."""
    wanted = cell("FedAvg", "", "fedalign/table1")
    held(tmp_path, "a", wanted, "best.pt", rounds=20)
    (run,) = RunInventory(RunRegistry(tmp_path)).runs[wanted.identity]
    for populations, said in ((None, True), ({"H_N": None, "H_D": None}, False)):
        problem = {"samples": 8, "operator": "hessian", "reading": "paper"}
        found = compared(populations=populations).edited(problem=problem)
        monkeypatch.setattr("fedscope.reproduce.artefacts.filled.cached_result", lambda *_, own=found: own)
        told = [line for line in notes([FilledCell(wanted, Match(run, 20), tmp_path)]) if "alone" in line]
        assert told == [line for line in told if line.endswith("not known: FedAvg")]
        assert bool(told) is said


def test_a_run_that_diverged_is_told_in_its_cell(tmp_path: Path) -> None:
    run = held(tmp_path, "lost", cell("FedAvg", "", "man/figure2"), rounds=500, done=7, finished=False)
    run.write_manifest(run.manifest().model_copy(update={"diverged": 7}))
    found = record(tmp_path, "man/table1", "cpu", rows=("FedAvg", "FedSAM"))
    assert entry(found, "FedAvg", "accuracy")["text"] == "diverged"
    assert entry(found, "FedSAM", "accuracy")["text"] is None
    seed = cell("FedAvg", "", "man/figure2").seed
    assert f"diverged: FedAvg, seed {seed}, in round 7" in found["notes"]


@pytest.mark.parametrize(("accuracy", "marked"), [(0.415, False), (0.424, False), (0.426, True)])
def test_a_number_is_marked_beyond_twice_the_combined_error(
    tmp_path: Path, accuracy: float, marked: bool
) -> None:
    """Printed is 40.90 ± 0.62, and of 10,000 samples 42.5 % is known to 0.49: the border is 42.48."""
    run = held(tmp_path, "r", cell("FedAvg", "", "man/figure2"), rounds=500)
    run.write_metrics(Round(round=n, accuracy=accuracy, seconds=1.0) for n in range(1, 501))
    found = entry(record(tmp_path, "man/table1", "cpu"), "FedAvg", "accuracy")
    assert found["value"] == pytest.approx(100 * accuracy)
    assert found["error"] == pytest.approx(0.494, abs=0.002)
    assert found["differs"] is marked


def test_what_was_trained_otherwise_is_not_marked(tmp_path: Path) -> None:
    """After 150 rounds it is not what the paper prints after 500; in bf16 for fp32 it is."""
    run = held(tmp_path, "r", cell("FedAvg", "", "man/figure2"), rounds=500)
    run.write_metrics(Round(round=n, accuracy=0.2, seconds=1.0) for n in range(1, 501))
    found = record(tmp_path, "man/table1", "cpu", rows=("FedAvg",), seeds=(83217,))
    own = [e for e in found["entries"] if (e["row"], e["quantity"]) == ("FedAvg", "accuracy")]
    assert [(e["column"].endswith("150"), e["differs"]) for e in own] == [(False, True), (True, None)]


def test_what_is_not_done_or_of_half_the_data_is_not_marked(tmp_path: Path) -> None:
    paper_cell = cell("FedAvg", COLUMN, "man/table1", "paper")
    run = held(tmp_path, "begun", paper_cell, done=120, finished=False)
    run.write_metrics(Round(round=n, accuracy=0.2, seconds=1.0) for n in range(1, 121))
    found = record(tmp_path, "man/table1", "paper", partial=True, rows=("FedAvg",), seeds=(paper_cell.seed,))
    assert entry(found, "FedAvg", "accuracy")["differs"] is None
    whole = held(tmp_path, "whole", paper_cell)
    whole.write_metrics(Round(round=n, accuracy=0.2, seconds=1.0) for n in range(1, 501))
    for samples, marked in ((50_000, True), (25_000, None)):
        manifest = whole.manifest()
        data = manifest.data.model_copy(update={"train_samples": samples})
        whole.write_manifest(manifest.model_copy(update={"data": data}))
        found = record(tmp_path, "man/table1", "paper", rows=("FedAvg",), seeds=(paper_cell.seed,))
        assert entry(found, "FedAvg", "accuracy")["differs"] is marked


def test_a_difference_takes_the_spread_between_trainings_from_another_table(tmp_path: Path) -> None:
    """44, 48 and 52 % of three seeds at round 150 tell that 50 and 44 % of single ones are no difference."""
    for row, accuracy, seeds in (("FedAvg", 0.44, (43217, 23217)), ("FedAvg+MAN", 0.50, ())):
        last = held(tmp_path, row, cell(row, COLUMN, "man/table1"))
        last.write_metrics(Round(round=n, accuracy=accuracy, seconds=1.0) for n in range(1, 501))
        for place, seed in enumerate(seeds, 1):
            short = cell(row, f"{COLUMN}, round 150", "man/table1")
            other = held(tmp_path, f"{row}{seed}", short, seed=seed)
            shown = accuracy + 0.04 * place
            other.write_metrics(Round(round=n, accuracy=shown, seconds=1.0) for n in range(1, 151))
    one = recipe("man/table1", "cpu")
    one = replace(one, columns={COLUMN: one.columns[COLUMN]}, claims=one.claims[:1])
    plan = Plan([one], Choices(), BuildSettings(tmp_path, tmp_path), partial=True)
    args = (one, plan.cells[one.name], plan.filled[one.name], "command", ())
    alone = assemble(*args)
    (claim,) = alone.claims
    assert claim.verdict == "holds"
    assert claim.evidence[0].endswith("(one seed; spread between trainings of the paper)")
    (note,) = (text for text in alone.notes if text.startswith("spread between trainings"))
    printed = [0.62, 0.36, 0.11, 0.48, 0.10, 0.20, 0.30, 0.12, 0.79, 0.32, 0.02, 0.15]  # of Table 1, δ 0.3
    pooled = fmean(std**2 for std in printed) ** 0.5
    assert note.endswith(f"of the deviations that the paper prints: accuracy (%) {pooled:.2g}")
    found = assemble(*args, plan.elsewhere[one.name])
    (claim,) = found.claims
    assert claim.verdict == "undecided"
    assert claim.evidence[0].endswith("± 5.7 (one seed; spread between trainings of man/table1)")  # 4·√2
    (note,) = (text for text in found.notes if text.startswith("spread between trainings"))
    assert note.endswith(f"of FedAvg in man/table1 under {COLUMN}, round 150: accuracy (%) 4")


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    found = record(tmp_path, "man/table2", "cpu", rows=("FedAvg", "FedAvg+MAN"))["reductions"]
    assert found[:3] == [
        "without FedSAM, FedSAM+MAN, FedDyn, FedDyn+MAN, FedDC, FedDC+MAN",
        "without the columns δ = 0.6",
        "1 of 3 seeds (δ = 0.3)",
    ]
    assert not any("without" in text for text in record(tmp_path, "man/table2", "paper")["reductions"])


def test_reductions_are_said_with_their_rows(tmp_path: Path) -> None:
    held(tmp_path, "short", cell("FedDC", "", "man/figure2"), precision="fp32", rounds=120)
    held(tmp_path, "long", cell("FedAvg", "", "man/figure2"), rounds=700)
    found = record(tmp_path, "man/figure2", "cpu", partial=True)
    assert "precision fp32 → bf16" in found["reductions"]
    assert "after 120 of 150 rounds (FedDC)" in found["reductions"]
    assert "at round 500 of a run of 700 (FedAvg)" in found["reductions"]
    assert "trained in fp32 (FedDC)" in found["reductions"]
    one = recipe("man/figure2", "cpu")
    assert f"rounds 500 → 150 ({', '.join(one.scale.by_row)})" in found["reductions"]
    assert not found["complete"]
    assert [len(one["accuracy"]) for one in found["drawn"]] == [500, 120]
    others = [row for row in one.rows if row not in ("FedAvg", "FedDC")]
    assert found["notes"][-1].endswith(f"no result of it: {', '.join(others)}")


def test_other_seeds_than_the_paper_s_are_said(tmp_path: Path) -> None:
    found = record(tmp_path, "man/table2", "paper", seeds=(1, 2, 3))["reductions"]
    assert [text for text in found if "seeds" in text] == [f"seeds {LISTED} → 1, 2, 3"]
    assert not any("seed" in text for text in record(tmp_path, "man/table2", "paper")["reductions"])


def test_a_run_without_the_measure_is_no_missing_run(tmp_path: Path) -> None:
    held(tmp_path, "r", cell("FedAvg", "", "man/figure2"), rounds=500)
    found = record(tmp_path, "man/table2", "cpu", partial=True)
    assert entry(found, "FedAvg", "trace")["text"] == "not measured"
    assert entry(found, "FedSAM", "trace")["text"] is None


def test_a_statement_is_not_judged_where_the_paper_s_own_numbers_say_otherwise(tmp_path: Path) -> None:
    """Table 5 prints 44.36 for FedBN+FedFOR and 44.51 for FedBN in its first column."""
    for column in ("column 1", "column 2"):
        for row, accuracy in (
            ("FedBN", 0.2),
            ("FedBN+FedProx", 0.2),
            ("FedBN+FedDyn", 0.2),
            ("FedBN+FedFOR", 0.9),
        ):
            run = held(tmp_path, f"{row}{column[-1]}", cell(row, column, "fedfor/table5"))
            rounds = run.manifest().settings.rounds
            run.write_metrics(Round(round=n, accuracy=accuracy, seconds=1.0) for n in range(1, rounds + 1))
    (claim,) = record(tmp_path, "fedfor/table5", "cpu")["claims"]
    assert claim["evidence"][0] == "column 1: not judged, since the paper's own numbers say otherwise"
    assert claim["evidence"][1].startswith("column 2: nearest: FedBN+FedFOR − FedBN")
    assert claim["verdict"] == "holds"


def test_costs_need_no_run_and_are_the_paper_s(tmp_path: Path) -> None:
    found = record(tmp_path, "fedalign/table5", "cpu")
    assert entry(found, "FedAvg", "macs")["value"] == pytest.approx(87.25, abs=0.01)
    assert not entry(found, "MOON", "macs")["differs"]  # 262.16, printed 262.2
    assert entry(found, "StochDepth", "macs")["differs"]  # 83.1, printed 82.4
    assert not entry(found, "FedProx", "parameters")["differs"]
    assert {c["verdict"] for c in found["claims"] if "macs" in c["statement"]} == {"holds"}
    table = record(tmp_path, "man/table3", "paper")["grid"]["rows"]
    assert ["CIFAR-100, conv2", "10,240,000", "6,400", ""] in table  # 64·10²·64·5² and 64·10²
    traffic = record(tmp_path, "fedfor/table1", "paper")["grid"]["rows"]
    by_row = {(row[0], row[1]): row[5] for row in traffic}
    assert by_row["FedFOR", "cross-device"].startswith("2.163 /")  # 4·(2P + Q), P = 269,722, Q = 1,376
    assert by_row["FedFOR", "cross-silo"] == by_row["FedAvg", "cross-silo"]


def test_settings_that_no_source_gives_are_listed_with_their_values(tmp_path: Path) -> None:
    found = record(tmp_path, "man/table2", "cpu")["provisional"]
    assert any(text.startswith("eval_model all (") for text in found), found


def held_on(root: Path, row: str, column: str, samples: int) -> None:
    """Register a run of MAN's Table 1 that was trained on so many samples."""
    run = held(root, f"{row}-{column[-3:]}", cell(row, column, "man/table1"), "round-0150.pt")
    manifest = run.manifest()
    data = manifest.data.model_copy(update={"train_samples": samples, "fingerprint": str(samples)})
    run.write_manifest(manifest.model_copy(update={"data": data}))


def test_a_data_set_that_was_not_whole_is_said(tmp_path: Path) -> None:
    held_on(tmp_path, "FedAvg", COLUMN, 25_000)
    reductions = record(tmp_path, "man/table1", "cpu", rows=("FedAvg",))["reductions"]
    assert "25,000 of the 50,000 training samples of cifar100" in reductions
    assert of_some(reductions) == []


def test_and_where_it_was_not(tmp_path: Path) -> None:
    """In the first row it was, which is no reason to say nothing of the second."""
    held_on(tmp_path, "FedAvg", COLUMN, 50_000)
    held_on(tmp_path, "FedAvg+MAN", COLUMN, 25_000)
    found = record(tmp_path, "man/table1", "cpu", rows=("FedAvg", "FedAvg+MAN"))
    (note,) = (text for text in found["reductions"] if "training samples of" in text)
    assert note.startswith("25,000 of the 50,000 training samples of cifar100 (")
    assert "FedAvg+MAN" in note
    assert "FedAvg," not in note
    assert of_some(found["reductions"]) == [note]
    assert f"{note}: they are not compared with the others" in legend(ArtefactRecord.read(found))
    claim = found["claims"][0]
    assert claim["statement"] == "FedAvg+MAN > FedAvg in accuracy"
    assert "trained on different data" in claim["evidence"][0]


def test_the_option_that_a_figure_sweeps_is_no_departure_and_all_else_is(tmp_path: Path) -> None:
    found = record(tmp_path, "fedfor/figure3", "cpu")
    option = found["sweep"]["option"]
    assert not any(text.startswith(option) for text in found["reductions"])
    assert any(text.startswith("rounds ") for text in found["reductions"]), found["reductions"]
