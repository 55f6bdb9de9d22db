"""What the commands say of whose the clients' models are, and which are equal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import Command

APP = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

def clients():
    draws = torch.Generator().manual_seed(1)
    sets = [(torch.randn(24, 4, generator=draws) * (1 + k), torch.arange(24) % 3) for k in range(5)]
    return {"train": sets, "test": sets[0]}
"""
ADD = ("runs", "add", "server.pt", "--model", "shown_app:network", "--dataset", "shown_app:clients",
       "--registry", "runs")  # fmt: skip
FEW = ("--registry", "runs", "--threads", "1", "--probes", "4", "--clients", "--client-probes", "16")


@pytest.fixture
def models(fedscope: Command, code: Callable[[str, str], Path]) -> dict[str, dict[str, Any]]:
    """States by the names of their files: five clients, of whom 0 and 3 are equal, and 2 is the server."""
    code("shown_app", APP)
    states = {}
    for name, seed in (("server", 9), *((f"client_{k}_model", s) for k, s in enumerate((1, 2, 9, 1, 4)))):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
        states[name] = net.state_dict()
        torch.save(states[name], f"{name}.pt")
    return states


def files(numbers: str, form: str = "client_{}_model.pt") -> list[str]:
    return [word for number in numbers for word in ("--client", form.format(number))]


WHO = (
    "clients 0 is client_0_model.pt, 1 is client_1_model.pt, 2 is client_2_model.pt, 3 is client_3_model.pt, "
    "4 is client_4_model.pt: numbered by the number in the file's name"
)
EQUAL = "clients 0, 3 have equal models; the global model is that of client 2"


@pytest.mark.usefixtures("models")
def test_every_command_says_who_is_who_and_who_is_equal(fedscope: Command) -> None:
    added = fedscope(*ADD, *files("31420"), "--name", "a")
    assert (added.code, added.out) == (0, "a\n")
    assert added.err.splitlines()[-2:] == [WHO, EQUAL]
    hessian = fedscope("hessian", "a", *FEW)
    assert hessian.code == 0, hessian.err
    assert f"a@0: {WHO}" in hessian.err
    assert f"a@0: {EQUAL}" in hessian.err
    cross = fedscope("hessian", "a", *FEW, "--json", "-").json["cross_client"]
    assert cross["pairing"] == {
        "told": "name", "numbers": [0, 1, 2, 3, 4],
        "sources": [f"client_{k}_model.pt" for k in range(5)], "equal": [[0, 3]], "as_global": [2],
    }  # fmt: skip
    clients = ("clients", "a", "--registry", "runs", "--threads", "1", "--only", "loss")
    table = fedscope(*clients).out
    assert WHO in " ".join(table.split())
    assert EQUAL in " ".join(table.split())
    assert fedscope(*clients, "--json", "-").json["pairing"] == cross["pairing"]
    show = ("runs", "show", "a", "--registry", "runs")
    shown = " ".join(fedscope(*show).out.replace("│", " ").split())
    assert "numbered by the number in the file's name" in shown
    assert EQUAL in shown
    assert (
        fedscope("runs", "show", "a", "--registry", "runs", "--json", "-").json["pairing"] == cross["pairing"]
    )
    assert fedscope("report", "a", "--registry", "runs", "--out", "a.html", "--samples", "24").code == 0


def test_a_shells_order_and_another_form_give_the_same_numbers(
    fedscope: Command, models: dict[str, dict[str, Any]]
) -> None:
    found = []
    for run, arguments in (
        ("right", files("01234")),
        ("turned", files("43210")),
        ("said", files("41302", "{0}=z{0}.pt")),
    ):
        for number in range(5):
            torch.save(models[f"client_{number}_model"], f"z{number}.pt")
        assert fedscope(*ADD, *arguments, "--name", run).code == 0
        found.append(fedscope("hessian", run, *FEW, "--recompute", "--json", "-").json["cross_client"])
    assert found[0]["H_N"] == found[1]["H_N"] == found[2]["H_N"]
    assert [one["pairing"]["told"] for one in found] == ["name", "name", "option"]


@pytest.mark.usefixtures("models")
def test_files_in_an_order_are_compared_on_common_data_alone(fedscope: Command) -> None:
    for number in range(5):
        Path(f"client_{number}_model.pt").rename(f"{'cadbe'[number]}.pt")
    added = fedscope(*ADD, *files("abcde", "{}.pt"), "--name", "a")
    assert "0 is a.pt, 1 is b.pt" in added.err
    for command in (("hessian", "a", *FEW), ("clients", "a", "--registry", "runs")):
        refused = fedscope(*command)
        assert (refused.code, refused.err.splitlines()[-1].startswith("Error: the clients of a@0 are")) == (
            2,
            1,
        )
        assert "does not say whose data are whose; name the models with `fedscope runs add" in refused.err
        assert "--client-data global" in refused.err
    common = fedscope("hessian", "a", *FEW, "--client-data", "global", "--json", "-").json["cross_client"]
    assert common["pairing"]["told"] == "files"
    named = [word for k, letter in enumerate("abcde") for word in ("--client", f"{k}={letter}.pt")]
    # what is known of the same models under their numbers is not said of these
    assert fedscope(*ADD, *named, "--name", "b").code == 0
    again = fedscope("hessian", "b", *FEW, "--client-data", "global", "--json", "-").json["cross_client"]
    assert again["pairing"]["told"] == "option"


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["1="], "K=FILE with the client's number K from 0"),
        (["x=f.pt"], "not 'x=f.pt'"),
        (["-1=server.pt"], "not '-1=server.pt'"),
        (["1=server.pt", "1=client_2_model.pt"], "client 1 is given twice"),
        (["1=server.pt", "client_2_model.pt"], "not some of both"),
        (["1=absent.pt"], "no such file or folder: absent.pt"),
        (["7=server.pt"], "has 5 clients from 0 up, and no client 7"),
        (["client_1_model.pt", "client_1_model.pt"], "are both of client 1"),
        (["client_1_model.pt", "server.pt"], "give each as --client K=FILE"),
    ],
)
def test_what_names_no_client_is_one_line_and_leaves_nothing(
    fedscope: Command, given: list[str], message: str
) -> None:
    done = fedscope(*ADD, *(word for one in given for word in ("--client", one)), "--name", "bad")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert done.err.startswith("Error: ")
    assert message in done.err
    assert not Path("runs/bad").exists()


@pytest.mark.usefixtures("models")
def test_a_run_of_one_model_alone_is_measured_whole(fedscope: Command) -> None:
    """Every client is the global model: no gap between them on common data, and all parts of `clients`."""
    for number in range(5):
        Path(f"client_{number}_model.pt").write_bytes(Path("server.pt").read_bytes())
    added = fedscope(*ADD, *files("01234"), "--name", "a")
    assert "the global model is that of clients 0, 1, 2, 3, 4" in added.err
    cross = fedscope("hessian", "a", *FEW, "--client-data", "global", "--json", "-").json["cross_client"]
    for reading in ("tensor", "parameter"):
        assert (cross["H_N"][reading]["value"], cross["H_N"][reading]["stderr"]) == (0, 0)
        assert (cross["H_D"][reading]["value"], cross["H_D"][reading]["stderr"]) == (1, 0)
    done = fedscope(
        "clients", "a", "--registry", "runs", "--threads", "1", "--json", "all.json",
        "--only", "loss,lambda_max,trace,drift,noise,barriers,overlap,diagonals",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(Path("all.json").read_text())
    assert record["averaging"]["global"]["mean"]["measured"]["value"] == 0
    assert record["barriers"]["mean"]["value"] == 0
    for part in ("alignment", "critical"):
        done = fedscope("clients", "a", "--registry", "runs", "--only", part, "--anchor", "global")
        assert (done.code, "client 0 did not move" in done.err) == (2, True)
        assert "products" not in done.err  # before anything is measured


def test_a_run_that_fedscope_trained_numbers_its_clients_itself(fedscope: Command) -> None:
    done = fedscope("hessian", "tiny", "--samples", "48", *FEW[2:])
    assert done.code == 0, done.err
    assert ": numbered as the run numbered them" in done.err
    shown = fedscope("runs", "show", "tiny", "--json", "-").json["pairing"]
    assert (shown["told"], shown["sources"], shown["equal"]) == ("run", [], [])


@pytest.mark.usefixtures("models")
def test_plain_files_beside_each_other_are_clients_by_their_names(fedscope: Command) -> None:
    own = ("--model", "shown_app:network", "--data", "shown_app:clients")
    plain = fedscope("hessian", "server.pt", *own, *FEW[2:], "--client-data", "global", "--json", "-")
    assert plain.code == 0, plain.err
    pairing = plain.json["cross_client"]["pairing"]
    assert (pairing["told"], pairing["sources"][4]) == ("name", "client_4_model.pt")
    assert (pairing["equal"], pairing["as_global"]) == ([[0, 3]], [2])
    torch.save({}, "client_4_old.pt")
    twice = fedscope("hessian", "server.pt", *own, *FEW[2:], "--client-data", "global")
    assert (twice.code, "are both of client 4 by their names" in twice.err) == (2, True)
