"""`fedscope clients`: tables, JSON, picture, and what is refused."""

from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.figures.embedded_record import read_record
from fedscope.records.clients_record import ClientsRecord
from tests.cli.conftest import Command

FAST = ("--samples", "64", "--threads", "1", "--only", "loss")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_the_tables_and_the_picture_of_a_round(fedscope: Command) -> None:
    found = fedscope("clients", "tiny", *FAST, "--figure", "gap.png", "--width", "page")
    assert found.code == 0
    assert "tiny@2: 3 clients" in found.out
    for name in ("f_k(w_k)", "F(w̄)", "F(w̄) − f_k(w_k)", "Client by client"):
        assert name in found.out
    assert read_record(Path("gap.png"))["analyses"][0]["schema"] == "fedscope/clients/1"
    again = fedscope("clients", "tiny", *FAST)
    assert "as measured before" in again.err
    assert again.out == found.out


def test_the_record(fedscope: Command) -> None:
    record = ClientsRecord.read(fedscope("clients", "tiny", *FAST, "--json").json)
    assert record.checkpoint.round == 2
    assert record.problem.samples == 64
    assert [one.quantity for one in record.flatness] == ["loss"]
    assert record.alignment is None


def test_what_is_wrong_is_refused_before_anything_is_measured(fedscope: Command) -> None:
    for arguments, said in (
        (("--only", "sharpness"), "--only takes loss, lambda_max"),
        (("--figure", "a.gif"), ".gif is a film of rounds: add --rounds"),
        (("--figure", "a.jpg"), "suffix .png, .pdf or .svg"),
        (("--figure", "a.png", "--kind", "diagonals"), "is of curves by round: add --rounds"),
        (("--figure", "a.png", "--kind", "matrix", "--rounds", "1:2"), "is no curve: name a .gif"),
        (
            ("--rounds", "1:2"),
            "no set of clients' uploads of round 1, it has 2; choose --rounds among these, or "
            "train with --save-clients all --keep-every 1",
        ),
        (("--kind", "drift"), "without --figure"),
        (("--split", "test"), "No such option '--split'"),  # clients hold training rows
        (("--model", "mine:net"), "No such option '--model'"),  # and which, a file of one's own does not say
    ):
        found = fedscope("clients", "tiny", *arguments)
        assert found.code == 2
        assert said in " ".join(found.err.split())
    missing = fedscope("clients", "tiny", *FAST, "--kind", "drift", "--figure", "a.png")
    assert (missing.code, missing.out) == (2, "")
    assert "--kind drift draws drift, and --only measures loss" in " ".join(missing.err.split())
    several = fedscope("clients", "tiny", "tiny@final", *FAST, "--figure", "a.png")
    assert (several.code, several.out) == (2, "")
    assert "a figure of clients is of one round, not 2" in several.err


def test_rounds_are_a_table_curves_and_a_film(fedscope: Command) -> None:
    assert fedscope(
        "train", "--name", "kept", "--model", "mlp_digits", "--clients", "2", "--rounds", "3",
        "--epochs", "1", "--train-samples", "200", "--save-clients", "all", "--keep-every", "2",
        "--threads", "1", "--quiet",
    ).code == 0  # fmt: skip
    asked = ("clients", "kept", *FAST[:-1], "loss,drift", "--rounds")
    found = fedscope(*asked, "all", "--figure", "a.png")
    assert found.code == 0, found.err
    assert [line.split()[0] for line in found.out.splitlines() if line[:1].isdigit()] == ["2", "3"]
    assert "kept: clients by round" in found.out
    rounds = [ClientsRecord.read(one) for one in fedscope(*asked, "2:3", "--json").json]
    single = ClientsRecord.read(fedscope("clients", "kept@2", *asked[2:-1], "--json").json)
    assert rounds[0].edited(seconds={}) == single.edited(seconds={})
    assert fedscope(*asked, "2:3", "--figure", "a.gif", "--kind", "drift").code == 0
    for name in ("a.png", "a.gif"):
        assert [one["checkpoint"]["round"] for one in read_record(Path(name))["analyses"]] == [2, 3]
    missing = fedscope(*asked, "1:3", "--figure", "b.png")
    assert "kept no set of clients' uploads of round 1, it has 2, 3" in " ".join(missing.err.split())
    assert "train with --save-clients all --keep-every 1" in " ".join(missing.err.split())


def test_what_is_under_way_is_named_by_what_it_measures(fedscope: Command) -> None:
    found = fedscope("clients", "tiny", *FAST[:-1], "noise,critical,alignment", "--top-k", "1")
    assert "λ_max" not in found.err
    for name in (
        "eigenspaces, products",
        "alignment, products",
        "gradient noise, gradients",
        "critical steps, passes",
    ):
        assert f"tiny@2: {name}" in found.err
    assert "critical steps, passes: 0" not in found.err
    assert "tiny@2: 3 clients – Updates and curvature" in found.out  # whose tables these are
    barriers = " ".join(fedscope("clients", "tiny", *FAST[:-1], "drift,barriers").out.split())
    assert "is minus the cost of averaging by F" in barriers  # one number with two errors
    losses = fedscope("clients", "tiny", *FAST)
    assert "λ_max" not in losses.out


def test_the_help_has_the_samples_of_each_client(fedscope: Command) -> None:
    found = " ".join(fedscope("clients", "--help").out.split())
    assert "[default: 512 of each client's rows, and of all]" in found
    assert "1024" not in found
