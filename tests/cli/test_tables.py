"""Tables at 40, 80, 100 and 120 columns: as a whole, and that no name is broken."""

import re

import pytest
from rich.cells import cell_len

from fedscope.cli import console, verbosity
from fedscope.cli.tables import Column, fit, parts, widths
from tests.cli.conftest import Command

LISTS = [("runs", "list"), ("presets", "list"), ("models", "list"), ("methods", "list"), ("data", "list")]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_runs_at_80_columns(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = _lines(fedscope("runs", "list").out)[-4:]
    assert re.sub(r"\d\.\d+", "0.1234", "\n".join(table)) == (
        "name ┃ status   ┃ method ┃ dataset ┃ rounds ┃ done ┃ accuracy ┃   best\n"
        "━━━━━╇━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━╇━━━━━━╇━━━━━━━━━━╇━━━━━━━\n"
        "tiny │ finished │ fedavg │ digits  │      2 │    2 │   0.1234 │ 0.1234\n"
        "not shown in 80 columns: clients, created, partition, model (see -v or --json)"
    )


@pytest.mark.parametrize("width", [40, 80, 100, 120])
@pytest.mark.parametrize("asked", LISTS, ids=" ".join)
def test_lists_fit_and_break_no_name(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], width: int
) -> None:
    names = {str(entry["name"]) for entry in fedscope(*asked, "--json").json}
    monkeypatch.setenv("COLUMNS", str(width))
    done = fedscope(*asked)
    lines = _lines(done.out)
    rule = next(place for place, line in enumerate(lines) if line.startswith("━"))
    assert max(cell_len(line) for line in lines[rule - 1 :]) <= width
    assert names <= {line.split("│")[0].strip() for line in lines[rule + 1 :]}
    words = " ".join(lines)
    left_out = re.search(rf"not shown in {width} columns: (.*) \(see -v or --json\)", words)
    assert bool(left_out) or width > 80 or asked == ("methods", "list")
    wide = fedscope(*asked, "-v").out
    assert "not shown" not in wide
    for name in left_out[1].split(", ") if left_out else ():
        assert name not in {heading.strip() for heading in lines[rule - 1].split("┃")}
        assert name in {heading.strip() for heading in re.split("[┃\n]", wide)}


def test_a_table_that_may_lose_no_column_goes_on_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["fedavg-digits@20", "17.47 ± 0.32", "351.2 ± 4.1 ± 9.8"], ["b", "1", "2"]]
    console.print_table("Hessian", ["checkpoint", "λ_max ± data", "trace ± probe ± data"], rows)
    assert _lines(capsys.readouterr().out) == [
        "Hessian",
        "checkpoint       ┃ λ_max ± data",
        "━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━",
        "fedavg-digits@20 │ 17.47 ± 0.32",
        "b                │            1",
        "checkpoint       ┃ trace ± probe ± data",
        "━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━",
        "fedavg-digits@20 │    351.2 ± 4.1 ± 9.8",
        "b                │                    2",
    ]


def test_columns_are_left_out_by_rank_and_all_are_there_when_verbose(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    columns, rows = ["name", "least", "more", "most"], [["a-name-of-a-run", "1", "2", "3"]]
    console.print_table("T", columns, rows, drop=("least", "more"))
    assert _lines(capsys.readouterr().out) == [
        "T",
        "name            ┃ more ┃ most",
        "━━━━━━━━━━━━━━━━╇━━━━━━╇━━━━━",
        "a-name-of-a-run │    2 │    3",
        "not shown in 30 columns: least",
        "(see -v or --json)",
    ]
    monkeypatch.setattr(verbosity.CURRENT, "verbose", True)
    console.print_table("T", columns, rows, drop=("least", "more"))
    assert [line for line in _lines(capsys.readouterr().out) if "│" in line] == [
        "a-name-of-a-run │     1 │    2",
        "a-name-of-a-run │    3",
    ]


def test_in_a_pipe_nothing_is_left_out() -> None:
    columns = [Column(name, (name, "x" * 90), is_text=True) for name in "abc"]
    assert fit(columns, None, ("b", "c")) == (columns, [])
    assert parts(columns, None) == [columns]
    assert fit(columns, 100, ("b", "c")) == (columns[:1], ["b", "c"])


def test_prose_is_broken_between_words_and_gets_the_room_that_is_left() -> None:
    prose = Column("what", ("what", "a text of many words that is long"), is_text=True)
    name = Column("name", ("name", "fedavg+man"), is_text=True)
    assert widths([name, prose], 80) == [10, prose.widest]
    assert widths([name, prose], 40) == [10, 27]
    assert (name.least, prose.least) == (10, 24)
