"""BatchNorm's statistics, never estimated or lacking in the file: what is said, and what reads none."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import fedscope
from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from tests.cli.conftest import Command
from tests.cli.conftest import fedscope as fedscope_command  # noqa: F401 (a fixture)

X = torch.randn(48, 3, generator=torch.Generator().manual_seed(0)) * 3 + 1
Y = torch.arange(48) % 4
NEVER = "BatchNorm never saw a sample"


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def _dense(model: nn.Module, *, own: bool) -> float:
    """Return λ_max of the dense Hessian in float64, BatchNorm with its statistics or with those of all X."""
    model = model.double()
    with torch.no_grad():
        h = model[0](X.double())  # type: ignore[index]
    if own:
        model[1].running_mean, model[1].running_var = h.mean(0), h.var(0)  # type: ignore[index]
    model.eval()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    w = torch.cat([p.detach().flatten() for p in model.parameters()])

    def of(w: Tensor) -> Tensor:
        parts = w.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        return cross_entropy(functional_call(model, named, (X.double(),)), Y)

    return float(torch.linalg.eigvalsh(torch.func.hessian(of)(w))[-1])


def test_statistics_that_never_saw_a_sample_are_told(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    found = fedscope.measure(model, data=(X, Y), probes=2, batch_size=48)
    assert found.lambda_max.value == pytest.approx(_dense(network(), own=False), rel=2e-3)
    assert sum(NEVER in one.message for one in caplog.records) == 1
    assert any(NEVER in note for note in found.record.problem.notes)
    assert any(NEVER in note and "--bn recalibrate" in note for note in found.table().notes)
    caplog.clear()
    anew = fedscope.measure(network(), data=(X, Y), probes=2, batch_size=48, bn="recalibrate")
    assert anew.lambda_max.value == pytest.approx(_dense(network(), own=True), rel=2e-3)
    assert (anew.record.problem.notes, caplog.records) == ((), [])
    model.train()(X)  # from here on it saw a batch
    assert fedscope.measure(model, data=(X, Y), probes=2, batch_size=48).record.problem.notes == ()


def test_a_plane_and_its_curvature_tell_of_a_network_once(caplog: pytest.LogCaptureFixture) -> None:
    fedscope.landscape(network(), data=(X, Y), grid=3, samples=48)  # float64 copies of it are made
    assert sum(NEVER in one.message for one in caplog.records) == 1


def test_an_operator_tells_of_a_network_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fedscope")
    model = nn.Sequential(network(), nn.BatchNorm1d(4))
    model[0].train()(X)
    for _ in range(2):
        fedscope.Hessian(model, cross_entropy, (X, Y))
    assert [one.message.partition(" (")[0] for one in caplog.records] == [
        "1 of 2 BatchNorm layers never saw a sample"
    ]
    caplog.clear()
    fedscope.Hessian(network(), cross_entropy, (X, Y), bn="batch")
    assert not caplog.records


@pytest.fixture
def lacking(tmp_path: Path) -> dict[str, object]:
    """The weights without statistics: by name, as a list of arrays, and as one vector."""
    model = network()
    np.savez(tmp_path / "list.npz", *[p.detach().numpy() for p in model.parameters()])
    torch.save(nn.utils.parameters_to_vector(model.parameters()).detach(), tmp_path / "vector.pt")
    only = {name: p.detach() for name, p in model.named_parameters()}
    torch.save({"module." + name: p for name, p in only.items()}, tmp_path / "wrapped.pt")
    return {"dict": only, **{n: str(tmp_path / n) for n in ("list.npz", "vector.pt", "wrapped.pt")}}


@pytest.mark.parametrize("form", ["dict", "list.npz", "vector.pt", "wrapped.pt"])
def test_weights_without_statistics_serve_where_these_are_not_read(
    lacking: dict[str, object], form: str
) -> None:
    what = lacking[form]
    modes: tuple[BatchNormMode, ...] = ("recalibrate", "batch")
    for bn in modes:
        found = fedscope.measure(what, model=network, data=(X, Y), bn=bn, probes=2, batch_size=48)  # type: ignore[arg-type]
        whole = fedscope.measure(network(), data=(X, Y), bn=bn, probes=2, batch_size=48)
        assert found.lambda_max.value == whole.lambda_max.value
    with pytest.raises(UserError, match=r"running_mean.*or take --bn recalibrate"):
        fedscope.measure(what, model=network, data=(X, Y))  # type: ignore[arg-type]


def test_other_tensors_that_lack_are_refused_as_before(lacking: dict[str, object]) -> None:
    only = dict(lacking["dict"])  # type: ignore[call-overload]
    del only["3.bias"]
    for bn in ("eval", "recalibrate"):
        with pytest.raises(UserError, match=r"3\.bias") as refused:
            fedscope.measure(only, model=network, data=(X, Y), bn=bn)
        assert "recalibrate" not in str(refused.value)


def test_the_terminal_says_so_too(
    fedscope_command: Command,  # noqa: F811
    lacking: dict[str, object],
    tmp_path: Path,
) -> None:
    (tmp_path / "normed.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))\n"
        "def data():\n    g = torch.Generator().manual_seed(0)\n"
        "    return torch.randn(48, 3, generator=g) * 3 + 1, torch.arange(48)[:, None] % 4\n"
    )
    torch.save(network().state_dict(), tmp_path / "new.pt")
    own = ("--model", "normed:net", "--data", "normed:data", "--batch-size", "48")
    few = ("--probes", "2")
    for command in (
        ("hessian", "new.pt", *own, *few),
        ("hessian", "new.pt", *own, *few),  # what is kept is said again
        ("hessian", "new.pt", "new.pt", *own, *few),
        ("plot-landscape", "new.pt", *own, "--grid", "3", "--out", "plane.png"),
        ("sharpness", "new.pt", *own, "--only", "average_l2"),
        ("report", "new.pt", *own, *few, "--grid", "3"),
    ):
        told = fedscope_command(*command)
        assert (told.code, (told.out + told.err).count(NEVER)) == (0, 1), (command, told.err)
    quiet = fedscope_command("hessian", "new.pt", *own, *few, "--bn", "recalibrate", "--json", "-")
    assert (quiet.code, NEVER in quiet.err) == (0, False), quiet.err
    for file in ("list.npz", "vector.pt", "wrapped.pt"):
        anew = fedscope_command("hessian", file, *own, *few, "--bn", "recalibrate", "--json", "-")
        assert anew.code == 0, anew.err
        assert anew.json["lambda_max"]["value"] == quiet.json["lambda_max"]["value"]
        refused = fedscope_command("hessian", file, *own)
        assert (refused.code, "--bn recalibrate" in refused.err) == (2, True), refused.err
