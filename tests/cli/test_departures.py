"""A gradient that is not the loss's, and a second derivative that is wrong, from the command line."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.cli.conftest import Command

MODULE = """
import torch
from torch import nn

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return (3 * x).round() / 3
    @staticmethod
    def backward(ctx, g): return g

class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y.clone())
        return y
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]

class Step(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x): return self.function(x)

def stack(function): return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), Step(function), nn.Linear(5, 3))
def rounded(): return stack(Rounded.apply)
def kept(): return stack(Kept.apply)

draw = torch.Generator().manual_seed(0)
X, Y = torch.rand(96, 1, 8, 8, generator=draw), torch.randint(3, (96,), generator=draw)
def batches(): return X, Y
def clients(): return {"train": list(zip(X[:60].split(30), Y[:60].split(30))), "test": (X[60:], Y[60:])}
"""
SAID = "the gradient is not that of the loss: Rounded in module '2'"


@pytest.fixture
def given(tmp_path: Path, fedscope: Command) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Identity(), nn.Linear(5, 3))
    torch.save(net.state_dict(), tmp_path / "net.pt")


def own(name: str) -> tuple[str, ...]:
    return "net.pt", "--model", f"steps:{name}", "--data", "steps:batches"


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("command", [("hessian", "--probes", "4"), ("sharpness", "--only", "lambda_max,sam")])
def test_what_was_measured_in_the_losses_place_is_in_table_and_record(
    command: tuple[str, ...], fedscope: Command
) -> None:
    name, *options = command
    shown = fedscope(name, *own("rounded"), *options)
    assert shown.code == 0, shown.err
    assert (shown.out + shown.err).count(SAID) == 1
    record = fedscope(name, *own("rounded"), *options, "--json", "-").json
    assert record["problem"]["departs"].startswith(SAID)
    assert record["reused"]  # from what was kept, which says it again


@pytest.mark.usefixtures("given")
def test_a_round_of_clients_says_it_too(fedscope: Command) -> None:
    trained = fedscope(
        "train", "--model", "steps:rounded", "--data", "steps:clients", "--rounds", "1", "--epochs", "1",
        "--lr", "0.1", "--save-clients", "all", "--name", "r",
    )  # fmt: skip
    assert trained.code == 0, trained.err
    only = ("--only", "loss,lambda_max")
    record = fedscope("clients", "r", *only, "--json", "-").json
    assert record["problem"]["departs"].startswith(SAID)
    shown = fedscope("clients", "r", *only)
    assert (shown.out + shown.err).count(SAID) == 1


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("name", ["hessian", "sharpness"])
def test_a_wrong_second_derivative_ends_in_a_line_with_the_way_out(name: str, fedscope: Command) -> None:
    done = fedscope(name, *own("kept"))
    assert done.code == 2
    assert "second derivative is wrong: Kept in module '2'" in done.err
    if name == "hessian":
        assert "--products finite-differences" in done.err
        again = fedscope(name, *own("kept"), "--products", "finite-differences", "--probes", "4")
        assert again.code == 0, again.err


@pytest.mark.usefixtures("given")
def test_a_landscape_says_that_the_loss_jumps(tmp_path: Path, fedscope: Command) -> None:
    (tmp_path / "jumps.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.nn.utils.parametrizations import orthogonal\n"
        "def net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), "
        "orthogonal(nn.Linear(4, 4), orthogonal_map='householder'), nn.Linear(4, 3))\n"
    )
    from torch.nn.utils.parametrizations import orthogonal

    torch.manual_seed(0)
    layer = orthogonal(nn.Linear(4, 4), orthogonal_map="householder")
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), layer, nn.Linear(4, 3))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    own = ("net.pt", "--model", "jumps:net", "--data", "steps:batches", "--grid", "3")
    done = fedscope("plot-landscape", *own, "--directions", "random")
    assert done.code == 0, done.err
    assert "the loss jumps at these weights" in done.out + done.err
