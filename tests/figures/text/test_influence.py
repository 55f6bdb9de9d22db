"""The tables of the samples that make λ_max."""

from rich.cells import cell_len

from fedscope.cli.terminal import console
from fedscope.cli.terminal.hessian_shown import shown
from fedscope.figures.text.advice import holders_unknown, redrawn
from fedscope.figures.text.influence_tables import influence_tables, percent
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.influence_entry import Holders, influence_entry
from tests.figures.records import curvature

PARTS = [6.0, 1.0, -1.0, 4.0, *[0.0] * 6]


def record(**known: object) -> HessianRecord:
    content = curvature()
    content["lambda_max"] = content["lambda_max"] | {"by_sample": PARTS, "effective_samples": 100 / 54}
    content["problem"]["samples"] = len(PARTS)
    entry = influence_entry(PARTS, rows=range(7, 17), listed=2, **known)  # type: ignore[arg-type]
    return HessianRecord.read(content | {"influence": entry})


def test_samples_classes_and_clients_each_have_a_table() -> None:
    labels = [0, 1, 1, 1, 2, 3, 4, 5, 6, 7]
    holders = Holders([[1], [1], [0], [0, 1], *[[]] * 6], rows="stored")
    samples, classes, clients = influence_tables(
        record(labels=labels, holders=holders, names=["cat"], split="train")
    )
    assert samples.columns == ("row", "class", "client", "q", "share %")
    assert samples.rows == (("7", "cat", "1", "6.000", "60.0"), ("10", "1", "0 1", "4.000", "40.0"))
    assert samples.notes[0] == (
        "the largest 1 % of samples (1 of 10) carry 60.0 % of λ_max; effective number of samples 1.85; "
        "samples with q < 0 (1) take off 10.0 %"
    )
    assert "rows of the train split" in samples.notes[1]
    assert [row[:3] for row in classes.rows[:2]] == [("cat", "1", "6.000"), ("1", "3", "1.333")]
    assert classes.rows[0][3].startswith("60 ± ")
    assert (len(classes.rows), classes.notes) == (5, ("3 more in --json, none with a larger share",))
    assert [row[0] for row in clients.rows] == ["1", "0"]


def test_what_is_not_known_has_no_column() -> None:
    (samples,) = influence_tables(record(holders=Holders(reason="an added run")))
    assert samples.columns == ("row", "q", "share %")
    assert "as your data gives them" in samples.notes[1]
    assert (
        holders_unknown(record(holders=Holders(reason="an added run"))) == "no shares by client: an added run"
    )
    assert holders_unknown(record()) is None
    assert not [*influence_tables(HessianRecord.read(curvature()))]


def test_rows_that_were_drawn_again_are_told() -> None:
    text = redrawn(record(holders=Holders([[0]] * 10, rows="redrawn")))
    assert text is not None
    assert "the shares by client are of rows drawn again" in text
    assert redrawn(record(holders=Holders([[0]] * 10, rows="stored"))) is None


def test_all_fits_eighty_columns(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"a class of a long name {i}" for i in range(10)]
    console.show(shown([record(labels=range(10), names=names, holders=Holders([[3, 14, 15]] * 10))]))
    lines = capsys.readouterr().out.splitlines()
    assert any("n_eff" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80


def test_shares_have_three_digits() -> None:
    assert [percent(x) for x in (0.151, 1.0, 0.00932, -0.1)] == ["15.1", "100", "0.932", "−10.0"]
    assert percent(0.05, 0.02) == "5.0 ± 2.0"
    assert percent(3e-9) == "3.000×10⁻⁷"
