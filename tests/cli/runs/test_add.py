import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedscope.models.catalogue import build
from tests.cli.conftest import Command

FEW = ("--samples", "64", "--threads", "1", "--registry", "runs")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder as FedAlign's code leaves it, of a network small enough to analyse."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for seed, name in enumerate(("server", "client_0", "client_1")):
        state = build("mlp_digits", 10, 1, torch.Generator().manual_seed(seed)).state_dict()
        torch.save({f"module.{key}": tensor for key, tensor in state.items()}, folder / f"{name}.pt")
    return folder


ADD = ("runs", "add", "theirs", "--model", "mlp_digits", "--dataset", "digits", "--registry", "runs")


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch.pt",), "no such file or folder: nosuch.pt"),
        (("theirs", "--client", "nosuch.pt"), "no such file or folder: nosuch.pt"),
        (("theirs", "--name", ""), "'' is no run name"),
        (("theirs", "--name", "tiny"), "tiny is taken; choose another --name"),
    ],
)
def test_what_is_missing_or_taken_is_told_before_data_is_fetched(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    monkeypatch.setattr("fedscope.data.reading.shards.fetch", lambda _: pytest.fail("asked the hub"))
    done = fedscope("runs", "add", *arguments, "--model", "resnet20", "--dataset", "cifar10")
    assert (done.code, message in done.err) == (2, True), done.err
    if arguments[-1] in ("", "tiny"):
        trained = fedscope("train", "--dataset", "cifar100", *arguments[1:])
        assert (trained.code, message in trained.err) == (2, True), trained.err


@pytest.mark.usefixtures("theirs")
def test_what_was_added_goes_through_every_command(fedscope: Command) -> None:
    done = fedscope(*ADD, "--round", "7", "--method", "fedprox")
    assert (done.code, done.out) == (0, "theirs\n")
    assert "removed module. from 4 names" in done.err
    (row,) = fedscope("runs", "list", "--registry", "runs", "--json").json
    assert (row["name"], row["method"], row["clients"], row["partition"]) == ("theirs", "fedprox", 2, None)
    shown = fedscope("runs", "show", "theirs", "--registry", "runs")
    assert (shown.code, "added from" in shown.out, "dirichlet" in shown.out) == (0, True, False)
    assert fedscope("runs", "verify", "--registry", "runs").code == 0
    probes = ("--probes", "4", "--clients", "--client-data", "global", "--client-probes", "4")
    record = fedscope("hessian", "theirs", *FEW, *probes, "--json", "-").json
    assert (record["checkpoint"]["run"], record["checkpoint"]["round"]) == ("theirs", 7)
    assert record["lambda_max"]["value"] > 0
    assert record["cross_client"]["clients"] == 2
    assert record["cross_client"]["populations"] is None  # all clients are measured on the same samples
    own = fedscope("hessian", "theirs", *FEW, "--clients", "--client-data", "own")
    assert (own.code, "not known of an added run; use --client-data global" in own.err) == (2, True)
    done = fedscope("plot-landscape", "theirs", *FEW, "--grid", "3", "--json", "l.json")
    assert (done.code, json.loads(Path("l.json").read_text())["checkpoint"]["run"]) == (0, "theirs")


def test_the_same_numbers_as_by_the_plain_file(fedscope: Command, theirs: Path) -> None:
    fedscope(*ADD, "--name", "mine")
    Path("plain_digits.py").write_text(
        "import torch\n"
        "from fedscope.data.sets.dataset_catalogue import load, pipeline\n"
        "from fedscope.models.catalogue import build\n"
        "def model():\n    return build('mlp_digits', 10, 1, torch.Generator())\n"
        "def data():\n"
        "    split = load('digits').train\n"
        "    inputs = pipeline('digits')[1].test(split.images, torch.arange(len(split)))\n"
        "    return [(inputs, split.labels)]\n"
    )
    same = (
        "--samples",
        "64",
        "--batch-size",
        "64",
        "--threads",
        "1",
        "--probes",
        "4",
        "--clients",
        "--client-data",
        "global",
        "--client-probes",
        "4",
        "--json",
        "-",
    )
    added = fedscope("hessian", "mine", "--registry", "runs", *same).json
    own = ("--model", "plain_digits:model", "--data", "plain_digits:data")
    plain = fedscope("hessian", str(theirs / "server.pt"), *own, *same).json
    # The run's split is all there is; the user's own data may be a part of more.
    finite = 1 - 64 / added["problem"]["population"]
    for quantity, names in {
        "lambda_max": ("residual", "by_sample"),
        "trace": ("samples", "stderr_probe"),
    }.items():
        mine, alone = added[quantity], plain[quantity]
        assert all(mine[name] == alone[name] for name in ("value", "batches", *names))
        assert mine["stderr_data"] == pytest.approx(finite**0.5 * alone["stderr_data"])
    assert plain["cross_client"]["H_N"] == added["cross_client"]["H_N"]
    assert plain["checkpoint"]["sha256"] == added["checkpoint"]["sha256"]
    assert added["problem"]["method"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--model", "mlp"), "unknown model 'mlp'"),
        (("--dataset", "digit"), "unknown dataset 'digit'"),
        (("--model", "resnet_digits"), "does not fit the network"),
        (("--entry", "ema"), "holds nothing below 'ema'"),
        (("--name", "../up"), "is no run name"),
        (("--client", "absent.pt"), "no such file"),
    ],
)
@pytest.mark.usefixtures("theirs")
def test_faults_are_one_line(fedscope: Command, change: tuple[str, str], message: str) -> None:
    done = fedscope(*ADD, *change)
    assert (done.code, done.err.splitlines()[-1].startswith("Error: ")) == (2, True)
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "array", [np.float32(1), np.zeros(3), np.array(["a"]), np.zeros((0, 2)), np.zeros((2, 2, 2))]
)
@pytest.mark.usefixtures("theirs")
def test_an_array_that_is_no_table_is_refused(fedscope: Command, array: object) -> None:
    np.save("rows.npy", array)  # type: ignore[arg-type]
    done = fedscope("runs", "add", "theirs/server.pt", *ADD[3:], "--client", "rows.npy", "--name", "x")
    assert (done.code, "rows.npy" in done.err, "Traceback" in done.err) == (2, True, False)
    assert not Path("runs/x").exists()


def test_the_users_own_network_is_named_at_every_use_unless_its_data_are_code_too(fedscope: Command) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), "w.pt")
    Path("their_app.py").write_text(
        "import torch\n"
        "def net():\n    return torch.nn.Linear(3, 2)\n"
        "def data():\n    return [(torch.randn(8, 3), torch.arange(8) % 2)]\n"
    )
    own = ("--model", "their_app:net", "--registry", "runs")
    assert fedscope("runs", "add", "w.pt", *own, "--dataset", "theirs").out == "w\n"
    refused = fedscope("hessian", "w", *FEW)
    assert (refused.code, "add --model MODULE:FACTORY and --data" in refused.err) == (2, True)
    given = ("--model", "their_app:net", "--data", "their_app:data", "--registry", "runs", "--threads", "1")
    assert fedscope("hessian", "w", *given, "--probes", "4").code == 0
    assert fedscope("runs", "add", "w.pt", *own, "--dataset", "their_app:data", "--name", "known").code == 0
    assert fedscope("hessian", "known", "--registry", "runs", "--threads", "1", "--probes", "4").code == 0


@pytest.mark.usefixtures("theirs")
def test_rows_and_entries_of_clients_are_options(fedscope: Command, theirs: Path) -> None:
    Path("rows.json").write_text(json.dumps({"0": [*range(40)], "1": [*range(40, 90)]}))
    for client in (0, 1):
        state = torch.load(theirs / f"client_{client}.pt", weights_only=True)
        torch.save({"modopt": {"model": state}, "own": {"model": state}}, theirs / f"client_{client}.pt")
    which = fedscope(*ADD, "--rows", "rows.json")
    assert (which.code, "choose one with --client-entry" in which.err) == (2, True)
    done = fedscope(*ADD, "--rows", "rows.json", "--client-entry", "own", "--bn", "recalibrate")
    assert (done.code, "rows.json gives 2 clients 90 of 1,437 training rows" in done.err) == (0, True)
    probes = ("--probes", "4", "--clients", "--client-data", "own", "--client-probes", "4")
    assert fedscope("hessian", "theirs", *FEW, *probes, "--json", "-").json["cross_client"]["clients"] == 2
    folder = fedscope("hessian", str(theirs), *FEW)
    assert (folder.code, "register it with `fedscope runs add`" in folder.err) == (2, True)
