"""`fedscope clients`: tables, JSON, picture, and what is refused."""

from pathlib import Path

from fedscope.figures.provenance import read_record
from fedscope.records.clients import ClientsRecord
from tests.cli.conftest import Command

FAST = ("--samples", "64", "--threads", "1", "--only", "loss")


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
        (("--figure", "a.gif"), "suffix .png, .pdf or .svg"),
        (("--kind", "drift"), "without --figure"),
        (("--split", "test", "--only", "loss"), "clients hold training rows"),
    ):
        found = fedscope("clients", "tiny", *arguments)
        assert found.code == 2
        assert said in " ".join(found.err.split())
    missing = fedscope("clients", "tiny", *FAST, "--kind", "drift", "--figure", "a.png")
    assert missing.code == 2
    assert "fedscope clients --only drift" in " ".join(missing.err.split())
