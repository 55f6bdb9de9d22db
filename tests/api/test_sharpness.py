"""Sharpness from Python: a table, a record, a picture."""

from pathlib import Path

import pytest
import torch
from torch import nn

import fedscope
from fedscope.errors import UserError

INPUTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 4


def test_a_network_has_its_sharpness() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    found = fedscope.sharpness(net, data=(INPUTS, LABELS), only=["average_l2", "fisher_rao"], pairs=3)
    assert found["average_l2"].settings["pairs"] == 3
    assert found["fisher_rao"].value > 0
    assert repr(found).startswith("Sharpness\n")
    assert found.to_dict()["schema"] == "fedscope/sharpness/1"
    assert len(found.figure().axes) == 2
    axes = found.plot(quantity="fisher_rao")
    assert [len(label.get_text()) > 0 for label in axes.get_yticklabels()] == [True]
    with pytest.raises(UserError, match="'trace' was not measured; there are average_l2, fisher_rao"):
        found["trace"]


def test_runs_share_a_table_and_their_results(registry: Path, tmp_path: Path) -> None:
    found = fedscope.sharpness("a", "b", registry=registry, samples=32, only=["sam"])
    first, second = found.to_dict()
    assert [one["quantity"] for one in second["differences"]] == ["sam"]
    assert "differences" not in first
    assert fedscope.sharpness("a", registry=registry, samples=32, only=["sam"]).to_dict()["reused"]
    found.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").is_file()
