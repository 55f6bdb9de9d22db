"""Tables at 40, 80, 100 and 120 columns: as a whole, and that no name is broken."""

import re

import pytest
from rich.cells import cell_len

from fedscope.cli.terminal import console, verbosity
from fedscope.cli.terminal.fitted_tables import TextColumn, fit, parts, widths
from tests.cli.conftest import Command

LISTS = [("runs", "list"), ("presets", "list"), ("models", "list"), ("methods", "list"), ("data", "list")]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_runs_at_80_columns(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = _lines(fedscope("runs", "list").out)[-5:]
    assert re.sub(r"\d\d\.\d+%", "12.34%", "\n".join(table)) == (
        "name ┃ status   ┃ method ┃ dataset ┃ rounds ┃ done ┃ accuracy ┃   best\n"
        "━━━━━╇━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━╇━━━━━━╇━━━━━━━━━━╇━━━━━━━\n"
        "tiny │ finished │ fedavg │ digits  │      2 │    2 │   12.34% │ 12.34%\n"
        "best: chosen on test\n"
        "not shown in 80 columns: clients, created, partition, model (see -v or --json)"
    )


# N a number
RUN = """
tiny
setting ┃ value
━
method │ fedavg
options │ –
reading │ paper
dataset │ digits
augmentation │ none
model │ resnet_digits
partition │ dirichlet_balanced
alpha │ N
exhausted │ redraw
phi │ –
rho │ –
clients │ N
participation │ N
sampling │ fixed_fraction
memory │ keep
rounds │ N
epochs │ N
batch_size │ N
lr │ N
lr_decay │ N
momentum │ N
nesterov │ False
optimizer_state │ round
weight_decay │ N
clip │ –
precision │ fp32
compile │ False
head │ –
shortcut │ –
drop_last │ False
weights │ –
stack │ N
train_samples │ –
test_samples │ –
clients_limit │ –
steps_limit │ –
evaluate_on │ test
eval_model │ cld
eval_drop_last │ –
target │ –
shift │ none
shift_probability │ N
shift_sequence │ N
shift_metric │ mean_best_since_shift
seed │ N
device │ cpu
threads │ N
save_clients │ last
keep_every │ N
created │ TIME
state │ finished
best │ round N N% (chosen on test)
data │ N train, N test, HASH
clients' rows │ stored, HASH
clients' models │ clients N N N: numbered as the run numbered them
tags │ –
Checkpoints
checkpoint ┃ kind ┃ sha256 ┃ round
━
best │ global │ HASH │ N
final │ global │ HASH │ N
initial │ global │ HASH │ N
N:anchor │ global │ HASH │ N
client0 │ client │ HASH │ N
client1 │ client │ HASH │ N
client2 │ client │ HASH │ N
Last rounds
round ┃ accuracy ┃ loss ┃ training loss ┃ seconds
━
N │ N% │ N │ N │ N
N │ N% │ N │ N │ N
Diagnostics
quantity ┃ round N ┃ round N
━
drift │ N │ N
gradient diversity │ N │ N
cosine of pairs │ −N │ −N
cosine to mean │ N │ N
server step │ N │ N
cosine of steps │ – │ N
distance from start │ N │ N
BatchNorm divergence │ N │ N
worst class │ N% │ N%
Cost
of all rounds ┃ total ┃ per round
━
to the clients │ N MB │ N MB
from the clients │ N MB │ N MB
mini-batch gradients │ N │ N
time │ N s │ N s
– data │ N s │ N s
– compute │ N s │ N s
– aggregation │ N s │ N s
– diagnostics │ N s │ N s
– evaluation │ N s │ N s
– checkpointing │ N s │ N s
peak memory of a worker │ N MB │
"""
DIFFERENCE = """
tiny and other
differs ┃ tiny ┃ other
━
rounds │ N │ N
seed │ N │ N
rounds done │ N │ N
best accuracy │ N% │ N%
final accuracy │ N% │ N%
final loss │ N │ N
final train_loss │ N │ N
"""
TRAINED = """
Trained
run ┃ rounds ┃ final accuracy ┃ best ┃ best by T/N ┃ checkpoint
━
new │ N │ N% │ N% │ – │ runs/new/final.pt
best: chosen on test
"""
SHORT = ("-q", "train", "--clients", "3", "--rounds", "1", "--epochs", "1")


def _shape(text: str) -> str:
    """Return tables of 80 columns without what differs between machines and times."""
    assert max(map(cell_len, text.splitlines())) <= 80
    text = re.sub(r"\b[0-9a-f]{12}\b", "HASH", re.sub("[━╇]+\n", "━\n", text))
    text = re.sub(r"\d{4}-\d\d-\S+", "TIME", text)
    text = re.sub(r"(?<![\w.])\d[\d,.]*(e-\d+)?", "N", text)
    return "\n".join(re.sub(" +", " ", line).strip() for line in text.splitlines())


def test_a_run_at_80_columns(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shape = _shape(fedscope("runs", "show", "tiny").out)
    assert re.sub(r"versions(.|\n)*?Checkpoints", "Checkpoints", shape) == RUN.strip()


def test_a_difference_at_80_columns(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert fedscope(*SHORT, "--seed", "1", "--name", "other").code == 0
    assert _shape(fedscope("runs", "diff", "tiny", "other").out) == DIFFERENCE.strip()


def test_a_training_at_80_columns(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert _shape(fedscope(*SHORT, "--registry", "runs", "--name", "new").out) == TRAINED.strip()


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
    columns = [TextColumn(name, (name, "x" * 90), is_text=True) for name in "abc"]
    assert fit(columns, None, ("b", "c")) == (columns, [])
    assert parts(columns, None) == [columns]
    assert fit(columns, 100, ("b", "c")) == (columns[:1], ["b", "c"])


def test_prose_is_broken_between_words_and_gets_the_room_that_is_left() -> None:
    prose = TextColumn("what", ("what", "a text of many words that is long"), is_text=True)
    name = TextColumn("name", ("name", "fedavg+man"), is_text=True)
    assert widths([name, prose], 80) == [10, prose.widest]
    assert widths([name, prose], 40) == [10, 27]
    assert (name.least, prose.least) == (10, 24)
