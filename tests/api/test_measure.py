"""Curvature from Python: of runs as the command measures it, and of what a notebook holds."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from matplotlib import pyplot
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, hessian
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import fedscope
from fedscope.cli.hessian import command
from fedscope.errors import UserError
from fedscope.figures.text.advice import advice
from fedscope.records.hessian_record import HessianRecord

pytestmark = pytest.mark.slow

INPUTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(60) % 4


def _net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)).double()


def _dense(model: nn.Module) -> torch.Tensor:
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        pieces = (piece.view(shape) for piece, shape in zip(flat.split(sizes), shapes, strict=True))
        return cross_entropy(functional_call(model, dict(zip(names, pieces, strict=True)), INPUTS), LABELS)

    found: torch.Tensor = hessian(loss)(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    return found


class _Module:
    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16)


DATA = {
    "a pair": (INPUTS, LABELS),
    "arrays": (INPUTS.numpy(), LABELS.numpy()),
    "a data set": TensorDataset(INPUTS, LABELS),
    "a loader": DataLoader(TensorDataset(INPUTS, LABELS), batch_size=7, shuffle=True),
    "batches": fedscope.Batches(INPUTS, LABELS, 9),
    "a function": lambda: (INPUTS, LABELS),
    "a bound method": _Module().train_dataloader,
    "a partial": partial(DataLoader, TensorDataset(INPUTS, LABELS), batch_size=16),
    "data as for training": lambda: {"train": (INPUTS, LABELS), "test": (INPUTS[:9], LABELS[:9])},
    "a list": [(INPUTS[:30], LABELS[:30]), (INPUTS[30:], LABELS[30:])],
}


@pytest.mark.parametrize("held", DATA)
def test_a_network_on_whatever_holds_its_data_has_its_own_eigenvalues(held: str) -> None:
    model = _net()
    found = fedscope.measure(model, data=DATA[held], top_k=3, tol=1e-8, trace_rtol=1e-3)
    dense = torch.linalg.eigvalsh(_dense(model)).flip(0)
    values = torch.tensor([one.value for one in found.eigenvalues], dtype=torch.float64)
    torch.testing.assert_close(values, dense[:3], rtol=1e-8, atol=0)
    low, high = found.trace.interval or (0, 0)
    assert found.trace.value == pytest.approx(float(dense.sum()), rel=0.01)
    assert low < float(dense.sum()) < high
    assert found.record.problem.samples == 60


def test_lambda_max_alone_has_no_trace_and_is_compared_without_one() -> None:
    model = _net()
    alone, whole = (
        fedscope.measure(model, data=(INPUTS, LABELS), only=only) for only in ("lambda_max", None)
    )
    assert alone.lambda_max == whole.lambda_max
    with pytest.raises(UserError, match="leave out only='lambda_max'"):
        _ = alone.trace
    assert alone.record.trace is None
    assert [one.quantity for one in fedscope.compare(alone, whole).differences[0]] == ["λ_max"]
    assert len(fedscope.compare(whole, whole).differences[0]) == 2


def test_a_state_dict_and_a_file_need_a_network(tmp_path: Path) -> None:
    model = _net()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    asked = fedscope.measure(model, data=(INPUTS, LABELS)).lambda_max.value
    for weights in (model.state_dict(), tmp_path / "w.pt", str(tmp_path / "w.pt")):
        for network in (_net, _net()):
            found = fedscope.measure(
                weights, model=network, data=(INPUTS, LABELS), registry=tmp_path / "none"
            )
            assert found.lambda_max.value == asked
    with pytest.raises(UserError, match="give model="):
        fedscope.measure(model.state_dict(), data=(INPUTS, LABELS))
    with pytest.raises(UserError, match="give data="):
        fedscope.measure(model)
    with pytest.raises(UserError, match="int, not a torch"):
        fedscope.measure(model.state_dict(), model=lambda: 3, data=(INPUTS, LABELS))


def test_a_registered_name_is_found_with_a_network_and_data_of_ones_own(registry: Path) -> None:
    run, images = fedscope.Registry(registry)["a"], torch.rand(16, 1, 8, 8)
    network = fedscope.load(run).model

    def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(images, LABELS[:16])]

    first, last = (
        fedscope.measure(
            what, model=network, data=data, registry=registry, probes=4, tol=0.1
        ).lambda_max.value
        for what in ("a@1", run)
    )
    assert last == fedscope.measure(network, data=data, probes=4, tol=0.1).lambda_max.value != first
    with pytest.raises(UserError, match="holds no @7"):
        fedscope.measure("a@7", model=network, data=data, registry=registry)


def test_a_loss_and_a_draw_of_ones_own() -> None:
    model, targets = _net(), torch.zeros(60, 4, dtype=torch.float64)
    found = fedscope.measure(model, data=(INPUTS, targets), loss=nn.MSELoss(), samples=20, seed=1)
    assert found.record.problem.samples == 20
    assert found.record.problem.loss == "MSELoss"
    single = fedscope.measure(model, data=(INPUTS, targets), loss=nn.MSELoss(), dtype="float32")
    assert next(model.parameters()).dtype == torch.float64
    double = fedscope.measure(model, data=(INPUTS, targets), loss=nn.MSELoss())
    assert [one.to_dict()["problem"]["dtype"] for one in (single, double)] == ["float32", "float64"]
    assert single.lambda_max.value != double.lambda_max.value
    assert single.lambda_max.value == pytest.approx(double.lambda_max.value, rel=1e-4)


def test_a_run_is_measured_as_the_command_does_it(registry: Path) -> None:
    found = fedscope.measure("a", registry=registry, samples=64, clients=True, probes=4)
    asked = ["a", "--registry", str(registry), "--samples", "64", "--clients", "--probes", "4"]
    again = json.loads(CliRunner().invoke(command, [*asked, "--json"]).stdout)
    assert again["reused"]
    assert {**again, "reused": False} == HessianRecord.read(found.to_dict()).to_json()
    assert found.clients
    run = fedscope.Registry(registry)["a"]
    assert fedscope.measure(run, samples=64, probes=4).record.reused
    kept = {*(registry / ".analysis").glob("*.json")}
    fedscope.measure(run, samples=48, probes=4)
    assert len({*(registry / ".analysis").glob("*.json")} - kept) == 1
    assert fedscope.measure(run.at(1), samples=64, probes=4).record.checkpoint.round == 1
    assert fedscope.measure(registry=registry, samples=64, probes=4).record.checkpoint.run == "b"


def test_a_result_prints_shortly_and_is_drawn(registry: Path, tmp_path: Path) -> None:
    found = fedscope.measure("a", registry=registry, samples=64, probes=4, density=True)
    assert repr(found).splitlines()[2].startswith("a@2")
    assert len(repr(found)) < 400
    assert "<td>a@2</td>" in found._repr_html_()
    _, axes = pyplot.subplots(1, 2)
    assert found.plot(axes[0]) is axes[0]
    assert axes[0].get_ylabel() == "density"
    assert fedscope.measure("a", registry=registry, samples=64, probes=4).plot().get_ylabel() == "eigenvalue"
    found.save(tmp_path / "density.png")
    assert (tmp_path / "density.png").stat().st_size > 10_000
    with pytest.raises(UserError, match="clients"):
        found.figure("clients")


@pytest.mark.parametrize(
    ("call", "keyword", "message"),
    [
        ("measure", "topk", "measure takes no 'topk'; did you mean 'top_k'"),
        ("compare", "sampels", "compare takes no 'sampels'; did you mean 'samples'"),
        ("landscape", "grd", "landscape takes no 'grd'; did you mean 'grid'"),
        ("clients", "sample", "clients takes no 'sample'; did you mean 'samples'"),
        ("sharpness", "sample", "sharpness takes no 'sample'; did you mean 'samples'"),
        ("report", "sample", "report takes no 'sample'; did you mean 'samples'"),
        ("load", "zzz", r"load takes no 'zzz'; help\(\) shows what it takes"),
    ],
)
def test_a_misspelt_keyword_is_refused(call: str, keyword: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        getattr(fedscope, call)("a", **{keyword: 3})


def test_networks_are_called_as_one_names_them(tmp_path: Path) -> None:
    nets, data = [_net(), _net()], (INPUTS, LABELS)
    names = ["FedAvg", "α = 0.1"]
    with torch.no_grad():
        next(nets[1].parameters()).add_(1)
    table = repr(fedscope.compare(*nets, data=data, names=names, probes=4))
    assert "FedAvg" in table
    assert "α = 0.1" in table
    assert "Sequential" not in table
    planes = fedscope.landscape(*nets, data=data, names=names, directions="random", grid=3)
    assert [plane.checkpoint.path for plane in planes.records] == ["FedAvg", "α = 0.1"]
    assert fedscope.measure(nets[0], data=data, names="one", probes=4).record.checkpoint.path == "one"
    for wrong in (["a"], ["a", "a"], ["a", ""], ["a", "b/c"]):
        with pytest.raises(UserError, match=r"names are (2|not)"):
            fedscope.compare(*nets, data=data, names=wrong)
    with pytest.raises(UserError, match="names of their own"):
        fedscope.measure("a", registry=tmp_path, names=["b"])
    with pytest.raises(UserError, match="names of their own"):
        fedscope.landscape("a", "b", registry=tmp_path, names=["c", "d"])


def test_all_of_ones_own_data_is_no_part_of_more() -> None:
    digits = load_digits()
    images, labels = torch.tensor(digits.data[:300] / 16).float(), torch.tensor(digits.target[:300])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    found = {
        samples: fedscope.measure(net, data=(images, labels), samples=samples, probes=4)
        for samples in (100, 300, "all")
    }
    assert {samples: one.record.problem.whole for samples, one in found.items()} == {
        100: False,
        300: False,  # it may have more
        "all": True,
    }
    told = {samples: " ".join(advice(one.record)) for samples, one in found.items()}
    assert [("they are all of your data" in text) for text in told.values()] == [False, False, True]
    assert [("more samples (--samples" in text) for text in told.values()] == [True, True, False]
