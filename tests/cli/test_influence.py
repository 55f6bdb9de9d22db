"""`fedscope hessian --influence`: tables, JSON, picture, of registered runs and of one's own network."""

import json
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch import nn

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli.options.command import with_value
from fedscope.data.sets.dataset_catalogue import load
from tests.cli.conftest import Command

FAST = ("--samples", "96", "--threads", "1", "--probes", "2")
MINE = """
import torch
from torch import nn
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return 2 * x
    @staticmethod
    def backward(ctx, u): return 2 * u
class Odd(nn.Linear):
    def forward(self, x): return Twice.apply(super().forward(x))
def plain(): return nn.Linear(4, 3)
def odd(): return Odd(4, 3)
def normalised(): return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
def data():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=draws)
    return [(x[:20], torch.arange(20) % 3), (x[20:], torch.arange(20, 50) % 3)]
def images():
    draws = torch.Generator().manual_seed(0)
    return [(torch.randn(20, 1, 2, 2, generator=draws), torch.arange(20) % 3)]
def flat(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""


@pytest.fixture
def mine(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    torch.manual_seed(0)
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "w.pt")


def test_a_bare_option_lists_ten() -> None:
    assert with_value(["--influence", "run"], "--influence") == ["--influence=10", "run"]
    for kept in (
        ["--influence", "3", "run"],
        ["--influence=4"],
        ["--", "--influence"],
        ["--influence", "-1"],
    ):
        assert with_value(kept, "--influence") == kept


def test_a_runs_samples_are_listed_drawn_and_drawn_again(fedscope: Command, run: RunFolder) -> None:
    figure = ("--figure", "who.png", "--kind", "influence")
    done = fedscope("hessian", "--influence", "tiny", *FAST, *figure, "--json", "r.json")
    assert done.code == 0, done.err
    printed = " ".join(done.out.split())
    for title in (
        "samples that carry most of λ_max: tiny@2",
        "λ_max by class: tiny@2",
        "λ_max by client: tiny@2",
    ):
        assert title in printed
    assert "the largest 1 % of samples (1 of 96) carry" in printed
    record = json.loads(Path("r.json").read_text("utf-8"))
    influence, top = record["influence"], record["lambda_max"]
    assert len(influence["largest"]) == 10
    labels = load("digits").train.labels
    assert all(one["label"] == int(labels[one["row"]]) for one in influence["largest"])
    parts = sorted(top["by_sample"], reverse=True)
    assert [one["part"] for one in influence["largest"]] == parts[:10]
    assert influence["top"] == {"samples": 1, "share": pytest.approx(parts[0] / sum(parts))}
    assert sum(one["share"] for one in influence["by_client"]) == pytest.approx(1)
    assert imread("who.png").shape[1] == 1500
    again = fedscope("hessian", *FAST, "--influence", "4", "--json", "-")
    assert "products" not in again.err
    assert again.json["influence"] == {**influence, "largest": influence["largest"][:4]}
    assert fedscope("hessian", *FAST, "--json", "-").json.get("influence") is None
    assert fedscope("plot-hessian", "r.json", "--kind", "influence", "--out", "again.pdf").code == 0


def test_a_figure_alone_lists_ten(fedscope: Command, run: RunFolder) -> None:
    done = fedscope("hessian", *FAST, "--figure", "x.svg", "--kind", "influence", "--json", "-")
    assert len(done.json["influence"]["largest"]) == 10
    assert "<image" in Path("x.svg").read_text("utf-8")


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("operator", ["hessian", "ggn", "fisher", "mcfisher"])
def test_rows_of_own_data_are_its_positions(fedscope: Command, operator: str) -> None:
    own = ("w.pt", "--model", "mine:plain", "--data", "mine:data", "--operator", operator)
    done = fedscope("hessian", *own, "--samples", "30", "--influence", "30", "--json", "-")
    influence = done.json["influence"]
    rows = [one["row"] for one in influence["largest"]]
    assert (len(set(rows)), max(rows) < 50, influence["split"]) == (30, True, None)
    assert all(one["label"] == one["row"] % 3 and one["clients"] == [] for one in influence["largest"])
    assert influence["by_client"] is None


@pytest.mark.usefixtures("mine")
def test_own_images_are_drawn_and_other_inputs_are_not(fedscope: Command) -> None:
    few = ("w.pt", "--probes", "2", "--influence", "3", "--kind", "influence")
    own = ("--model", "mine:plain", "--data", "mine:data")
    assert fedscope("hessian", *few, *own, "--figure", "plain.svg").code == 0
    assert "<image" not in Path("plain.svg").read_text("utf-8")
    torch.save({f"1.{name}": w for name, w in torch.load("w.pt").items()}, "flat.pt")
    own = ("--model", "mine:flat", "--data", "mine:images")
    assert fedscope("hessian", "flat.pt", *few[1:], *own, "--figure", "images.svg").code == 0
    assert Path("images.svg").read_text("utf-8").count("<image") == 3


@pytest.mark.usefixtures("mine")
def test_where_parts_are_not_known_that_is_told(fedscope: Command) -> None:
    own = ("w.pt", "--model", "mine:odd", "--data", "mine:data", "--probes", "2", "--influence")
    done = fedscope("hessian", *own)
    assert done.code == 0
    assert "which samples make λ_max is not known: an operation" in done.err
    assert "n_eff" not in done.out
    drawn = fedscope("hessian", *own, "--figure", "x.png", "--kind", "influence")
    assert (drawn.code, "no parts of the samples" in drawn.err) == (2, True)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--influence", "0"), "--influence"),
        (("--influence", "--engine", "pyhessian"), "fedscope's own estimators"),
        (("--influence", "--bn", "batch", "--batch-size", "50"), "take --bn eval"),
    ],
)
def test_what_has_no_parts_is_refused(fedscope: Command, options: tuple[str, ...], message: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    torch.save(model.state_dict(), "bn.pt")
    done = fedscope("hessian", "bn.pt", "--model", "mine:normalised", "--data", "mine:data", *options)
    assert (done.code, message in done.err) == (2, True), done.err
