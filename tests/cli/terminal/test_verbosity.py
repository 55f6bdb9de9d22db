"""`-v`, `-q`, `--debug`: what a command says beside its results."""

from pathlib import Path

import pytest
import torch

from fedscope.cli.terminal import console, verbosity
from tests.cli.conftest import Command

OWN = """
import torch

def network(): return torch.nn.Linear(2, 2)
def data():
    return [(torch.zeros(4, 2), rows())]
def rows():
    raise ValueError("no rows today")
def whole(): return [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]
def loss(output, targets):
    return output.nonsense
"""


@pytest.mark.parametrize("flags", [("-v", "runs", "list"), ("runs", "-v", "list"), ("runs", "list", "-v")])
def test_the_flags_stand_before_and_after_the_command(fedscope: Command, flags: tuple[str, ...]) -> None:
    assert fedscope(*flags).code == 0
    assert verbosity.CURRENT.verbose
    assert fedscope("runs", "list").code == 0
    assert not verbosity.CURRENT.verbose


def test_quiet_leaves_results_and_errors(fedscope: Command) -> None:
    asked = ("hessian", "tiny", "--samples", "64", "--probes", "2", "--json", "-")
    loud = fedscope(*asked, "--recompute")
    assert "λ_max" in loud.err
    done = fedscope("-q", *asked, "--recompute")
    assert (done.code, done.err) == (0, "")
    assert done.json["lambda_max"]["value"] == loud.json["lambda_max"]["value"]
    assert fedscope("hessian", "none", "-q").err.startswith("Error: ")


def test_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, shown in (("", "note\n"), ("verbose", "note\n"), ("quiet", "")):
        verbosity.reset()
        if flag:
            setattr(verbosity.CURRENT, flag, True)
        console.note("note")
        assert capsys.readouterr().err == shown
    verbosity.reset()


def test_a_table_has_two_footnotes_at_most(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.print_table("T", ["a"], [["1"]], ["one", "two", "three", "four"])
    assert capsys.readouterr().out == "T\na\n━\n1\none\ntwo (2 more with -v)\n"
    monkeypatch.setattr(verbosity.CURRENT, "verbose", True)
    console.print_table("T", ["a"], [["1"]], ["one", "two", "three"])
    assert capsys.readouterr().out == "T\na\n━\n1\none\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("module", "data", "more", "place"),
    [
        ("fails", "data", (), "ValueError: no rows today (fails.py, line 8)"),
        ("odd", "whole", ("--loss", "odd:loss"), "(odd.py, line 11)"),
    ],
)
def test_what_the_users_code_raises_names_its_line(
    fedscope: Command, module: str, data: str, more: tuple[str, ...], place: str
) -> None:
    Path(f"{module}.py").write_text(OWN)
    torch.save(torch.nn.Linear(2, 2).state_dict(), "linear.pt")
    own = ("--model", f"{module}:network", "--data", f"{module}:{data}")
    done = fedscope("hessian", "linear.pt", *own, *more)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert place in done.err
    done = fedscope("hessian", "linear.pt", *own, *more, "--debug")
    assert done.code == 2
    assert "Traceback" in done.err
    assert f'{module}.py", line ' in done.err
    assert place in done.err.splitlines()[-1]
