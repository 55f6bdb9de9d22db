"""Networks of the zoo from the command line, and the batches that small data is cut into."""

from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Command
from tests.landscape.zoo import NETS

MODULE = """
import torch
from tests.landscape import zoo

def data_of(name): return lambda: zoo.NETS[name].batches()
lenet, lenet_data = zoo.NETS["LeNet of the tutorial"].model, data_of("LeNet of the tutorial")
resnet, resnet_data = zoo.NETS["ResNet for CIFAR"].model, data_of("ResNet for CIFAR")
forces, forces_data = zoo.NETS["gradient in forward"].model, data_of("gradient in forward")
forces_loss = zoo.NETS["gradient in forward"].loss
fixed, fixed_data = zoo.NETS["fixed batch"].model, data_of("fixed batch")
recurrent, words = zoo.NETS["GRU"].model, data_of("GRU")

def padded():
    for n, length in ((3, 4), (2, 6)):
        yield torch.randint(1, 20, (n, length)), torch.randint(4, (n,))
"""
SAVED = {"lenet": "LeNet of the tutorial", "resnet": "ResNet for CIFAR", "forces": "gradient in forward"}
SAVED |= {"fixed": "fixed batch", "recurrent": "GRU"}
FEW = ("--threads", "1", "--tol", "0.1")


@pytest.fixture
def given(tmp_path: Path, fedscope: Command) -> None:
    (tmp_path / "animals.py").write_text(MODULE)
    for name, network in SAVED.items():
        torch.save(NETS[network].model().state_dict(), tmp_path / f"{name}.pt")


def own(name: str, data: str | None = None) -> tuple[str, ...]:
    return f"{name}.pt", "--model", f"animals:{name}", "--data", f"animals:{data or name + '_data'}", *FEW[:2]


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("name", ["lenet", "resnet"])
def test_networks_that_view_their_features_are_measured_fast(name: str, fedscope: Command) -> None:
    ours = fedscope("hessian", *own(name), "--probes", "4", "--tol", "1e-3", "--json", "-").json
    theirs = fedscope("hessian", *own(name), "--engine", "pyhessian", "--json", "-").json
    assert ours["lambda_max"]["value"] == pytest.approx(theirs["lambda_max"]["value"], rel=0.02)
    assert (ours["problem"]["form"], theirs["problem"]["form"]) == ("fast", "plain")
    assert "form_reason" not in ours["problem"]
    drawn = fedscope("plot-landscape", *own(name), "--grid", "3", "--json", "-").json
    assert drawn["problem"]["form"] == "fast"


@pytest.mark.usefixtures("given")
def test_a_network_that_no_faster_form_fits_is_measured_as_it_is_and_that_is_said(fedscope: Command) -> None:
    loss = ("--loss", "animals:forces_loss")
    done = fedscope("hessian", *own("forces"), *loss, "--probes", "4")
    assert done.code == 0, done.err
    assert done.err.count("plain PyTorch is used") == 1
    record = fedscope("hessian", *own("forces"), *loss, "--probes", "4", "--json", "-").json
    assert (record["problem"]["form"], record["reused"]) == ("plain", True)
    assert "second derivative" in record["problem"]["form_reason"]
    drawn = fedscope("plot-landscape", *own("forces"), *loss, "--grid", "3")
    assert drawn.err.count("plain PyTorch is used") == 1


@pytest.mark.usefixtures("given")
def test_a_network_of_one_batch_size_is_measured_in_it(fedscope: Command) -> None:
    done = fedscope("hessian", *own("fixed"), "--batch-size", "16", "--probes", "4", "--json", "-")
    assert done.json["batch_sizes"] == [16, 16], done.err
    assert fedscope("plot-landscape", *own("fixed"), "--batch-size", "16", "--grid", "3").code == 0


@pytest.mark.usefixtures("given")
def test_small_data_of_ones_own_has_error_bars(fedscope: Command) -> None:
    found = fedscope("hessian", *own("lenet"), "--probes", "4", "--json", "-").json
    assert found["batch_sizes"] == [1] * 9
    assert found["trace"]["stderr_data"] > 0
    assert found["lambda_max"]["stderr_data"] > 0
    asked = fedscope("hessian", *own("lenet"), "--probes", "4", "--batch-size", "6", "--json", "-").json
    assert asked["batch_sizes"] == [3, 3, 3]  # dealt to batches no larger than asked, the smallest as small


@pytest.mark.usefixtures("given")
def test_batches_of_several_lengths_are_taken_as_they_come(fedscope: Command) -> None:
    found = fedscope("hessian", *own("recurrent", "padded"), "--probes", "4", "--json", "-")
    assert found.json["batch_sizes"] == [3, 2], found.err
    refused = fedscope("hessian", *own("recurrent", "padded"), "--samples", "4")
    assert (refused.code, "pad them to one shape" in refused.err) == (2, True)
