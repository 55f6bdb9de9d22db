"""On which split the best round was chosen is said wherever that round is shown."""

from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.report import report_page
from fedscope.workflows.report_page import as_record
from tests.cli.conftest import Command


def test_a_run_that_chose_on_test_says_so(fedscope: Command, run: RunFolder) -> None:
    assert "best: chosen on test" in fedscope("runs", "list").out
    assert fedscope("runs", "list", "--json", "-").json[0]["chosen_on"] == "test"
    assert "(chosen on test)" in fedscope("runs", "show", "tiny").out
    done = fedscope("hessian", "tiny@best", "--samples", "16", "--tol", "0.1", "--probes", "2")
    assert "best (chosen on test)" in done.err
    assert "chosen on test" in report_page([as_record(run)], [], [])


def test_a_run_that_held_rows_out_chose_on_them(fedscope: Command) -> None:
    asked = ("--rounds", "1", "--epochs", "1", "--clients", "2", "--train-samples", "100")
    where = ("--registry", "mine", "--partition", "iid")
    done = fedscope("train", *asked, *where, "--validation", "0.1", "--name", "held")
    assert done.code == 0, done.err
    assert "best: chosen on validation" in done.out
    assert fedscope("train", *asked, *where, "--name", "whole", "--json", "-").json["chosen_on"] == "test"
    listed = fedscope("runs", "list", "--registry", "mine").out
    assert "chosen on validation in held" in listed
    assert "chosen on test in whole" in listed
    done = fedscope("hessian", "held@best", "--split", "validation", "--probes", "2", "--registry", "mine")
    assert "best (chosen on validation)" in done.err
    assert Path("mine/held/rows.zz").exists()


@pytest.mark.parametrize("share", ["0.6", "-0.1", "0.001"])
def test_a_share_that_cannot_be_held_out_is_refused(fedscope: Command, share: str) -> None:
    done = fedscope("train", "--clients", "2", "--train-samples", "100", "--validation", share)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "--validation" in done.err
