import copy
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.data.sets.dataset_catalogue import load, pipeline
from fedscope.figures.digits import format_estimate
from fedscope.landscape.operators.base import Product
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.models.catalogue import build
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.measurements import compute
from fedscope.workflows.sources.problem import load as load_problems
from fedscope.workflows.sources.samples import Source
from tests.cli.conftest import Command

pytestmark = pytest.mark.slow

FAST = ("--samples", "96", "--threads", "1")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_json_is_the_contract(fedscope: Command, run: RunFolder) -> None:
    done = fedscope(
        "hessian", *FAST, "--top-k", "3", "--probes", "6", "--density", "--clients", "--client-probes", "4",
        "--json", "-",
    )  # fmt: skip
    record = done.json
    assert record["schema"] == "fedscope/hessian/1"
    checkpoint = load_checkpoint(run.final)
    assert {k: record["checkpoint"][k] for k in ("path", "sha256", "run", "round")} == {
        "path": str(run.final), "sha256": checkpoint.sha256, "run": "tiny", "round": 2,
    }  # fmt: skip
    expected = {
        "model": "mlp_digits", "dataset": "digits", "split": "train", "samples": 96, "bn": "eval",
        "dtype": "float32", "operator": "hessian", "engine": "fedscope", "reading": "paper",
    }  # fmt: skip
    assert {key: record["problem"][key] for key in expected} == expected
    values = [pair["value"] for pair in record["eigenvalues"]]
    assert values == sorted(values, reverse=True)
    assert record["lambda_max"] == record["eigenvalues"][0]
    assert all(pair["residual"] <= 1e-3 * values[0] for pair in record["eigenvalues"])
    assert record["trace"]["probes"] == 6
    assert len(record["density"]["grid"]) == len(record["density"]["density"])
    cross = record["cross_client"]
    assert (cross["clients"], cross["pairs"]) == (3, "distinct")
    assert (cross["weights"], cross["data"], cross["probes"]) == ("client", "own", 4)
    assert set(cross["H_N"]) == set(cross["H_D"]) == {"tensor", "parameter"}
    keys = {"value", "stderr", "interval", "dof", "resolved"}
    assert all(set(e) == keys for metric in ("H_N", "H_D") for e in cross[metric].values())
    assert all(set(norm) == keys for norms in cross["squared_norms"].values() for norm in norms)
    for metric in ("H_N", "H_D"):
        assert set(cross["populations"][metric]["parameter"]) == keys
        assert [len(row) for row in cross["matrices_resolved"][metric]["parameter"]] == [3, 3, 3]
    assert record["matvecs"] > 3 + 6 + 3 * 4
    assert record["seconds"] > 0
    assert record["versions"]["torch"] == torch.__version__


@pytest.fixture
def smooth(tmp_path: Path) -> nn.Module:
    """A twice differentiable network of the user's own, as small.pt, with mine.py to rebuild it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10)).double()
    torch.save(model.state_dict(), tmp_path / "small.pt")
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "from fedscope.data.sets.dataset_catalogue import load, pipeline\n"
        "def model():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10))\n"
        "def data():\n"
        "    split = load('digits').train\n"
        "    inputs = pipeline('digits')[1].test(split.images[:100])\n"
        "    return zip(inputs.split(37), split.labels[:100].split(37))\n"
    )
    return model


MINE = ("small.pt", "--model", "mine:model", "--data", "mine:data", "--dtype", "float64")


def test_lambda_max_and_trace_are_the_dense_ones(fedscope: Command, smooth: nn.Module) -> None:
    # An oracle from the weights on: another path to the data, another derivative, LAPACK.
    record = fedscope("hessian", *MINE, "--tol", "1e-8", "--json", "-").json
    split = load("digits").train
    inputs = pipeline("digits")[1].test(split.images, torch.arange(100)).double()
    names = [name for name, _ in smooth.named_parameters()]

    def loss(*parameters: Tensor) -> Tensor:
        output = torch.func.functional_call(smooth, dict(zip(names, parameters, strict=True)), (inputs,))
        return cross_entropy(output, split.labels[:100])

    parameters = tuple(p.detach() for p in smooth.parameters())
    blocks = torch.autograd.functional.hessian(loss, parameters)
    rows = [[b.reshape(p.numel(), -1) for b in row] for p, row in zip(parameters, blocks, strict=True)]
    dense = torch.cat([torch.cat(row, 1) for row in rows])
    assert record["lambda_max"]["value"] == pytest.approx(torch.linalg.eigvalsh(dense)[-1].item(), rel=1e-6)
    trace = record["trace"]
    assert trace["value"] == pytest.approx(dense.trace().item(), abs=4 * trace["stderr_probe"])
    assert record["problem"]["samples"] == 100
    assert record["checkpoint"]["run"] is None


def test_the_same_file_twice_gives_the_same_digits(fedscope: Command, run: RunFolder) -> None:
    shutil.rmtree(run.folder.parent / ".analysis", ignore_errors=True)  # where other tests' results are
    arguments = ("hessian", str(run.best), *FAST, "--probes", "4", "--density", "--json", "-")
    first, second, third = (fedscope(*arguments, *more).json for more in ([], ["--recompute"], []))
    assert [record.pop("reused") for record in (first, second, third)] == [False, False, True]
    assert third.pop("seconds") == second.pop("seconds") != first.pop("seconds")
    assert first == second == third


def test_another_seed_is_another_result_where_the_samples_are_all(fedscope: Command, run: RunFolder) -> None:
    arguments = ("hessian", str(run.best), "--samples", "all", "--tol", "0.1", "--probes", "2", "--json", "-")
    first, second = (fedscope(*arguments, "--seed", seed).json for seed in "01")
    assert first["samples_sha256"] == second["samples_sha256"]
    assert [record["problem"]["seed"] for record in (first, second)] == [0, 1]
    assert first["trace"]["samples"] != second["trace"]["samples"]


def test_an_interrupted_measurement_goes_on(fedscope: Command, run: RunFolder) -> None:
    shutil.rmtree(run.folder.parent / ".analysis", ignore_errors=True)  # where other tests' results are
    arguments = ("hessian", str(run.best), *FAST, "--probes", "20", "--json", "-")
    whole = fedscope(*arguments, "--registry", "elsewhere").json
    counted = list[str]()

    def interrupted(*_: object) -> list[Product]:
        counted.append("product")
        if len(counted) == 8:
            raise KeyboardInterrupt
        return original(*_)  # type: ignore[arg-type]

    original = LossOperator._apply
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LossOperator, "_apply", interrupted)
        assert fedscope(*arguments).code == 130
    kept = list(run.folder.parent.glob(".analysis/products/*/*.npz"))
    assert len(kept) == 7
    again = fedscope(*arguments).json
    for record in (whole, again):
        record.pop("seconds")
    assert again == whole
    assert not list(run.folder.parent.glob(".analysis/products/*"))


@pytest.mark.parametrize("other", [{"augment": True}, {"normalisation": "none"}])
def test_a_result_on_other_images_answers_for_no_usual_request(
    fedscope: Command, run: RunFolder, other: dict[str, Any]
) -> None:
    asked = ("hessian", *FAST, "--probes", "3", "--json", "-")
    assert fedscope(*asked).code == 0
    wanted = Measure("hessian", samples=96, top_k=3, probes=3, tol=1e-3, **other)
    compute(run.final, wanted, run.root, None, "cpu", lambda _: None)
    more = fedscope(*asked, "--top-k", "3").json
    assert len(more["eigenvalues"]) == 3
    assert not {"augmented", "normalisation"} & set(more["problem"])


def test_lambda_max_alone_is_that_of_the_whole_and_takes_its_products_only(fedscope: Command) -> None:
    asked = ("hessian", *FAST, "--seed", "11", "--probes", "3", "--json", "-")
    only = ("hessian", *FAST, "--seed", "11", "--only", "lambda_max")
    alone, printed = fedscope(*only, "--json", "-").json, fedscope(*only).out
    whole = fedscope(*asked, "--recompute").json
    assert (alone["lambda_max"], alone["eigenvalues"]) == (whole["lambda_max"], whole["eigenvalues"])
    assert alone["trace"] is None
    assert whole["matvecs"] > alone["matvecs"] > 0
    assert "λ_max ± data" in printed
    assert "trace" not in printed
    assert fedscope(*asked).json["trace"] == whole["trace"]
    assert fedscope(*only, "--json", "-").json["reused"]


def test_power_iteration_gives_what_it_can_and_no_errors(fedscope: Command) -> None:
    few = (*FAST, "--probes", "8", "--top-k", "5", "--json", "-")
    ours, theirs = (fedscope("hessian", *few, *engine).json for engine in ([], ["--engine", "power"]))
    values = [one["value"] for one in theirs["eigenvalues"]]
    assert (theirs["problem"]["engine"], len(values)) == ("power", 5)
    assert values == sorted(values, reverse=True)
    assert theirs["lambda_max"]["value"] == pytest.approx(ours["lambda_max"]["value"], rel=2e-2)
    assert theirs["lambda_max"]["stderr_data"] is theirs["lambda_max"]["residual"] is None
    spread = 4 * (ours["trace"]["stderr_probe"] + theirs["trace"]["stderr_probe"])
    assert theirs["trace"]["value"] == pytest.approx(ours["trace"]["value"], abs=spread)
    assert (theirs["converged"], theirs["non_finite"]) == (None, 0)


def test_pyhessian_agrees_within_its_tolerance(fedscope: Command) -> None:
    ours = fedscope("hessian", *FAST, "--json", "-").json
    theirs = fedscope("hessian", *FAST, "--engine", "pyhessian", "--json", "-").json
    assert theirs["problem"]["engine"] == "pyhessian"
    # it stops when two iterates differ by 1e-3, which bounds its error only loosely
    assert theirs["lambda_max"]["value"] == pytest.approx(ours["lambda_max"]["value"], rel=1e-2)
    assert theirs["lambda_max"]["residual"] is None
    spread = 4 * ours["trace"]["stderr_probe"] + 0.1 * abs(ours["trace"]["value"])
    assert theirs["trace"]["value"] == pytest.approx(ours["trace"]["value"], abs=spread)
    assert (theirs["converged"], theirs["non_finite"]) == (None, 0)


def test_samples_are_a_fixed_draw_in_every_run_of_a_data_set(run: RunFolder) -> None:
    problems = load_problems([run.final, run.client(1)], Source(samples=50))
    images = [torch.cat([x for x, _ in p.batches]) for p in problems]
    assert torch.equal(*images)
    other = load_problems([run.final], Source(samples=50, seed=1))[0]
    assert not torch.equal(images[0], torch.cat([x for x, _ in other.batches]))
    assert load_problems([run.final], Source(samples=None))[0].batches.samples == 1437
    assert load_problems([run.final], Source(samples=None, split="test"))[0].batches.samples == 360


def test_several_checkpoints_stand_in_one_table(fedscope: Command) -> None:
    done = fedscope("hessian", "tiny", "tiny@client1", *FAST, "--probes", "4", "--json", "both.json")
    rows = [line.split("│")[0].strip() for line in done.out.splitlines() if "│" in line]
    assert rows == ["tiny@2", "tiny@client1 (round 2)", "tiny@client1 (round 2)"]
    assert "Difference to tiny@2" in done.out
    records = json.loads(Path("both.json").read_text())
    assert [r["checkpoint"]["client"] for r in records] == [None, 1]


def test_clients_are_of_the_checkpoints_round_where_kept(fedscope: Command) -> None:
    kept = ("--clients", "2", "--rounds", "2", "--epochs", "1", "--save-clients", "all", "--keep-every", "1")
    assert fedscope("train", *kept, "--registry", "runs", "--name", "kept").code == 0
    few = ("--registry", "runs", *FAST, "--probes", "2", "--clients", "--client-probes", "3", "--json", "-")
    for reference, round in (("kept@1", 1), ("kept", 2)):
        record = fedscope("hessian", reference, *few).json
        assert record["cross_client"]["rounds"] == [round, round]


def test_noise_is_not_reported_as_agreement(fedscope: Command) -> None:
    few = ("--samples", "32", "--threads", "1", "--probes", "2", "--clients", "--client-probes", "3")
    done = fedscope("hessian", *few, "--json", "r.json")
    cross = json.loads(Path("r.json").read_text())["cross_client"]
    assert cross["H_D"]["parameter"]["value"] is cross["H_D"]["parameter"]["interval"] is None
    assert "raise --client-probes" in done.out


def test_the_density_is_drawn(fedscope: Command) -> None:
    done = fedscope("hessian", *FAST, "--probes", "2", "--figure", "density.png")
    assert done.code == 0
    assert imread("density.png").std() > 0.05


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_landscape_is_drawn_and_recorded(fedscope: Command, run: RunFolder, suffix: str) -> None:
    out = f"plots/landscape.{suffix}"
    arguments = (
        "tiny",
        "tiny@client0",
        *FAST,
        "--grid",
        "5",
        "--span",
        "0.5",
        "--out",
        out,
        "--json",
        "l.json",
    )
    done = fedscope("plot-landscape", *arguments)
    assert (done.code, done.out) == (0, f"{out}\n")
    assert Path(out).stat().st_size > 10_000
    records = json.loads(Path("l.json").read_text())
    assert [r["checkpoint"]["client"] for r in records] == [None, 0]
    record = records[0]
    assert (record["schema"], record["directions"]) == ("fedscope/landscape/1", "eigen")
    assert [axis["values"] for axis in record["axes"]] == [[-0.5, -0.25, 0.0, 0.25, 0.5]] * 2
    assert record["loss"][2][2] == pytest.approx(record["center_loss"], rel=1e-6)
    assert record["non_finite"] == 0
    problem = load_problems([run.final], Source(samples=96))[0]
    losses = [cross_entropy(problem.model(x), y, reduction="sum").item() for x, y in problem.batches]
    assert record["center_loss"] == pytest.approx(sum(losses) / 96, rel=1e-5)


@pytest.mark.usefixtures("smooth")
def test_the_surface_bends_as_the_eigenvalues_say(fedscope: Command) -> None:
    # Not on a ReLU network: finite differences across its kinks see curvature that no derivative has.
    record = fedscope("plot-landscape", *MINE, "--grid", "3", "--span", "0.01", "--json", "-").json
    loss, h = record["loss"], record["axes"][0]["values"][2]
    along = ([loss[0][1], loss[1][1], loss[2][1]], [loss[1][0], loss[1][1], loss[1][2]])
    for (low, middle, high), curvature in zip(along, record["curvature"], strict=True):
        assert (low - 2 * middle + high) / h**2 == pytest.approx(curvature, rel=0.01)


def test_random_directions(fedscope: Command) -> None:
    record = fedscope("plot-landscape", *FAST, "--directions", "random", "--grid", "3", "--json", "-").json
    assert (record["directions"], record["curvature"]) == ("random", None)


def poisoned(run: RunFolder, tmp_path: Path) -> RunFolder:
    checkpoint = load_checkpoint(run.final)
    state = copy.deepcopy(checkpoint.state)
    state["fc2.weight"][0, 0] = math.nan
    folder = RunFolder(tmp_path / "registry" / "nan")
    folder.folder.mkdir(parents=True)
    folder.write_manifest(run.manifest().model_copy(update={"name": "nan"}))
    save_checkpoint(folder.final, state, checkpoint.info.model_copy(update={"run": "nan"}))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("hessian", "--json", "r.json"),
        ("plot-landscape", "--directions", "random", "--grid", "3"),
        ("plot-landscape", "--grid", "3"),
        ("report",),
    ],
)
def test_weights_that_are_not_finite_are_named(
    fedscope: Command, run: RunFolder, tmp_path: Path, command: tuple[str, ...]
) -> None:
    broken = str(poisoned(run, tmp_path).final)
    done = fedscope(command[0], broken, *FAST, *command[1:])
    assert (done.code, done.out) == (2, "")
    assert "nan/final.pt has weights that are not finite: fc2.weight (1 of " in done.err
    assert "take an earlier round" in done.err
    assert "--top-k" not in done.err
    assert not Path("r.json").exists()


def test_a_client_that_is_not_finite_is_named_before_the_long_steps(
    fedscope: Command, run: RunFolder, tmp_path: Path
) -> None:
    copied = RunFolder(tmp_path / "registry" / "copy")
    shutil.copytree(run.folder, copied.folder)
    copied.write_manifest(run.manifest().model_copy(update={"name": "copy"}))
    path = copied.clients()[1]
    checkpoint = load_checkpoint(path)
    state = copy.deepcopy(checkpoint.state)
    state["fc2.bias"][:3] = math.inf
    save_checkpoint(path, state, checkpoint.info)
    done = fedscope("hessian", str(copied.final), *FAST, "--clients")
    assert done.code == 2
    assert f"client {checkpoint.info.client} of " in done.err
    assert "has weights that are not finite: fc2.bias (3 of " in done.err
    assert "products" not in done.err  # no step has begun


def test_cross_client_needs_clients(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    done = fedscope("hessian", str(poisoned(run, tmp_path).final), *FAST, "--clients")
    assert done.code == 2
    assert "train with --save-clients last" in done.err


def test_other_data_than_the_checkpoints_is_refused(
    fedscope: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(load("digits"), fingerprint="0" * 64)
    monkeypatch.setattr("fedscope.data.sets.dataset_catalogue.load", lambda *_: other)
    done = fedscope("hessian", *FAST)
    assert (done.code, "is not the data the checkpoint was trained on" in done.err) == (2, True)


MODULE = """
import torch
def model(): return torch.nn.Linear(3, 2)
def broken(): raise ValueError("no weights today")
def data(): return [(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))]
def nothing(): return None
def raises():
    yield torch.ones(4, 3), torch.zeros(4, dtype=torch.long)
    raise RuntimeError("disk gone")
def dicts(): return [{"inputs": torch.ones(4, 3), "targets": torch.zeros(4)}]
def wide(): return [(torch.ones(4, 5), torch.zeros(4, dtype=torch.long))]
def classes(): return [(torch.ones(4, 3), torch.full((4,), 7))]
"""


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("broken", "data", "no weights today"),
        ("data", "data", "not a torch.nn.Module"),
        ("model", "nothing", "--data own:nothing"),
        ("model", "raises", "disk gone"),
        ("model", "dicts", "unexpected keyword argument 'inputs'"),
        ("model", "wide", "fails in own:model"),
        ("model", "classes", "fails in cross-entropy"),
        ("absent", "data", "has no 'absent'"),
    ],
)
def test_a_fault_in_the_users_own_code_is_told_as_that(
    fedscope: Command, tmp_path: Path, model: str, data: str, message: str
) -> None:
    (tmp_path / "own.py").write_text(MODULE)
    torch.save(nn.Linear(3, 2).state_dict(), "w.pt")
    done = fedscope("hessian", "w.pt", "--model", f"own:{model}", "--data", f"own:{data}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_own_data_is_read_once_and_drawn_by_the_seed(code: Callable[[str, str], Path]) -> None:
    code(
        "shuffled",
        "import torch\n"
        "def model():\n    return torch.nn.Linear(1, 10)\n"
        "def data():\n"
        "    rows = torch.randperm(100)\n"
        "    return zip(rows[:, None].float().split(30), (rows // 10).split(30))\n",
    )
    torch.save(nn.Linear(1, 10).state_dict(), "w.pt")
    own = {"model": "shuffled:model", "data": "shuffled:data", "batch_size": 16}
    first, second = load_problems([Path("w.pt")] * 2, Source(samples=50, **own))  # type: ignore[arg-type]
    assert first.batches.sizes == (16, 16, 16, 2)
    drawn = torch.cat([y for _, y in first.batches])
    assert torch.equal(drawn, torch.cat([y for _, y in second.batches]))
    assert len(drawn.unique()) == 10
    assert load_problems([Path("w.pt")], Source(**own))[0].batches.samples == 100  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["(x, y)", "(x.numpy(), y.numpy())", "TensorDataset(x, y)", "parts",
                                  "{'train': parts, 'test': (x[:3], y[:3])}"])  # fmt: skip
def test_own_data_may_come_as_for_training(form: str, code: Callable[[str, str], Path]) -> None:
    code(
        "whole",
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "def model():\n    return torch.nn.Linear(1, 10)\n"
        "def data():\n"
        "    x, y = torch.arange(100.)[:, None], torch.arange(100) // 10\n"
        "    parts = [(x[:30], y[:30]), (x[30:], y[30:])]\n"
        f"    return {form}\n",
    )
    torch.save(nn.Linear(1, 10).state_dict(), "w.pt")
    (problem,) = load_problems([Path("w.pt")], Source(model="whole:model", data="whole:data"))
    inputs, targets = (torch.cat(parts) for parts in zip(*problem.batches, strict=True))
    assert torch.equal(inputs, torch.arange(100.0)[:, None])
    assert torch.equal(targets, torch.arange(100) // 10)


def test_a_state_dict_that_does_not_fit_is_told(fedscope: Command, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "import torch\n"
        "def model():\n    return torch.nn.Linear(3, 2)\n"
        "def data():\n    return [(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))]\n"
    )
    torch.save(build("resnet_digits", 10, 1, torch.Generator()).state_dict(), "w.pt")
    done = fedscope("hessian", "w.pt", "--model", "other:model", "--data", "other:data")
    assert (done.code, "w.pt does not fit the network: it holds 3 that" in done.err) == (2, True)


def test_python_users_find_the_contract() -> None:
    from fedscope.landscape import Batches, Hessian, top_eigenpairs, trace

    model = nn.Linear(3, 2)
    batches = Batches(torch.randn(10, 3), torch.randint(0, 2, (10,)), batch_size=4)
    operator = Hessian(model, cross_entropy, batches)
    pairs = top_eigenpairs(operator, k=2, tol=1e-3, generator=torch.Generator().manual_seed(0))
    assert pairs.values[0] >= pairs.values[1]
    estimate = trace(operator, rtol=0.2, generator=torch.Generator().manual_seed(0))
    assert estimate.stderr_probe <= 0.2 * abs(estimate.value)


@pytest.mark.parametrize(
    ("operator", "title"),
    [
        ("ggn", "Gauss–Newton matrix"),
        ("fisher", "Empirical Fisher information"),
        ("mcfisher", "Monte-Carlo Fisher information"),
    ],
)
def test_other_operators_and_blocks_of_parameters(fedscope: Command, operator: str, title: str) -> None:
    few = ("--samples", "60", "--probes", "4", "--operator", operator)
    done = fedscope("hessian", "tiny", *few, "--json", "whole.json")
    assert done.code == 0, done.err
    assert title in done.out
    whole = json.loads(Path("whole.json").read_text())
    assert whole["problem"]["operator"] == operator
    assert whole["lambda_max"]["value"] > 0
    assert whole["trace"]["value"] > whole["lambda_max"]["value"]
    block = fedscope("hessian", "tiny", *few, "--parameters", "fc2.*", "--json", "-").json
    assert block["problem"]["parameters"] == "fc2.*"
    assert 0 < block["lambda_max"]["value"] <= whole["lambda_max"]["value"] * 1.001  # Cauchy interlacing
    refused = fedscope("hessian", "tiny", *few, "--engine", "pyhessian")
    assert (refused.code, "drop --operator" in refused.err or "--probes" in refused.err) == (2, True)
    nothing = fedscope("hessian", "tiny", *few, "--parameters", "encoder.*")
    assert (nothing.code, "no trainable parameter matches 'encoder.*'" in nothing.err) == (2, True)


def test_both_ends_and_layers(fedscope: Command) -> None:
    done = fedscope(
        "hessian",
        *FAST,
        "--batch-size",
        "16",
        "--top-k",
        "2",
        "--both-ends",
        "--layers",
        "--probes",
        "2",
        "--json",
        "b.json",
    )
    record = json.loads(Path("b.json").read_text())
    values = [entry["value"] for entry in record["eigenvalues"]]
    assert values == sorted(values, reverse=True)
    assert len(values) == 4
    assert values[-1] < 0 < values[0]
    layers = {layer["name"]: layer["value"] for layer in record["layers"]}
    top = record["lambda_max"]
    rounded = format_estimate(top["value"], top["stderr_data"])
    assert f"eigenvalues ± data {rounded}, " in done.out  # in the digits of the table
    assert "fc2.*" in layers
    assert "fc2.*" in done.out
    # Cauchy's interlacing: no block's largest eigenvalue exceeds the whole's
    assert max(layers.values()) <= values[0] * (1 + 1e-3)
    refused = fedscope("hessian", *FAST, "--engine", "pyhessian", "--layers")
    assert refused.code == 2


def test_processes_share_the_batches(fedscope: Command, run: RunFolder) -> None:
    arguments = ("hessian", str(run.final), *FAST, "--batch-size", "32", "--probes", "3", "--recompute")
    alone = fedscope(*arguments, "--json", "-").json
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
        "fedscope", *arguments, "--json", "shared.json",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    shared = json.loads(Path("shared.json").read_text())
    assert shared["lambda_max"]["value"] == pytest.approx(alone["lambda_max"]["value"], rel=1e-5)
    assert shared["trace"]["value"] == pytest.approx(alone["trace"]["value"], rel=1e-5)
    assert shared["matvecs"] == alone["matvecs"]
