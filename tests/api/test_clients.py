"""The clients of a round from Python: what the command measures, as tables, a record and a picture."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib import pyplot
from torch import nn

import fedscope
from fedscope.cli.clients import command
from fedscope.errors import UserError


def test_a_round_is_measured_as_by_the_command(registry: Path, tmp_path: Path) -> None:
    parts = {"registry": registry, "samples": 32, "only": ("loss", "drift"), "seed": 3}
    found = fedscope.clients("a", **parts)  # type: ignore[arg-type]
    asked = ["a", "--registry", str(registry), "--samples", "32", "--only", "loss,drift", "--seed", "3"]
    said = json.loads(CliRunner().invoke(command, [*asked, "--json"]).stdout)
    assert said.pop("reused")
    mine = found.to_dict()
    assert "reused" not in mine
    for where in ("checkpoint", "start"):  # the command's paths are from where it ran
        assert Path(mine[where].pop("path")).name == Path(said[where].pop("path")).name
    assert mine == said
    assert repr(found).startswith("a@2: 3 clients – Flatness\n")
    assert [table.title for table in found.tables()][1:] == [
        "Flatness gaps", "Cost of averaging", "Client by client"
    ]  # fmt: skip
    assert found._repr_html_().count("<table>") == 4
    found.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").is_file()
    assert len(found.figure("drift").axes) == 2
    _, axes = pyplot.subplots()
    assert found.plot(axes, quantity="loss") is axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2"]
    with pytest.raises(UserError, match="has no trace: measure it with"):
        found.plot(quantity="trace")


def test_what_is_no_round_of_a_run_is_refused(registry: Path) -> None:
    with pytest.raises(UserError, match="name it as RUN or RUN@25, not by a network of your own"):
        fedscope.clients(nn.Linear(2, 2), registry=registry)
    with pytest.raises(UserError, match="and leave out split"):
        fedscope.clients("a", registry=registry, split="test")
    with pytest.raises(UserError, match="--only takes loss"):
        fedscope.clients("a", registry=registry, only=["sharpness"])
