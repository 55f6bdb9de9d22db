"""The presets say what the papers' tables say: compared with the specification's list, where it is there."""

import csv
import re
from pathlib import Path

import pytest

from fedscope.checkpoints.schema import Settings, parse
from fedscope.errors import UserError
from fedscope.federated.methods import OURS
from fedscope.federated.methods import parse as parse_method
from fedscope.federated.presets import Preset, preset, presets

SPECIFIED = Path(__file__).parents[3] / "shared" / "spec" / "presets.csv"
OPTIONS = {  # as the list calls them
    "FedProx mu": "prox.mu", "MOON mu": "moon.mu", "tau": "moon.tau", "Mixup gamma": "mixup.gamma",
    "StochDepth rho_L": "sd.keep", "w_b": "gradaug.width", "FedAlign w_S": "fedalign.width",
    "zeta": "man.zeta", "FedDyn alpha": "dyn.alpha", "FedDC alpha": "dc.alpha", "SAM rho": "sam.rho",
    "ASAM rho": "asam.rho", "eta": "asam.offset", "FedSpeed alpha": "dyn.alpha",
}  # fmt: skip
IID = {"cifar100/iid": "iid_per_class"}  # of each class equally many; elsewhere a permutation, cut


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, str]]:
    if not SPECIFIED.exists():
        pytest.skip("the specification's presets.csv is not here")
    with SPECIFIED.open(newline="") as handle:
        return {row["preset_id"]: row for row in csv.DictReader(handle)}


def number(text: str) -> float | None:
    return float(text) if text else None


def test_every_row_of_the_list_is_a_preset(listed: dict[str, dict[str, str]]) -> None:
    assert list(presets()) == list(listed)


@pytest.mark.parametrize("name", presets())
def test_settings_are_those_of_the_list(name: str, listed: dict[str, dict[str, str]]) -> None:
    row, ours = listed[name], parse(Settings, preset(name).settings, name)
    assert (ours.dataset, ours.model) == (row["dataset"], row["model"])
    wanted = row["partition"]
    if wanted == "iid":
        wanted = next((kind for end, kind in IID.items() if name.endswith(end)), "iid")
    assert ours.partition == wanted
    if row["partition_param"].startswith("phi"):
        assert f"phi={ours.phi:g} rho={ours.rho:g}" == row["partition_param"]
    else:
        assert ours.alpha == number(row["partition_param"])
    if row["clients"] == "fresh":
        assert (f"{ours.clients} per round", ours.participation) == (row["participation"], 1.0)
    else:
        assert (ours.clients, ours.participation) == (int(row["clients"]), float(row["participation"]))
    if row["rounds"]:
        assert ours.rounds == int(row["rounds"])
    else:
        assert "rounds" in preset(name).unknown
    assert (ours.epochs, ours.batch_size) == (int(row["local_epochs"]), int(row["batch"]))
    assert (ours.lr, ours.lr_decay) == (float(row["lr"]), float(row["lr_decay_per_round"]))
    assert (ours.weight_decay, ours.momentum) == (float(row["weight_decay"]), float(row["momentum"]))
    assert ours.nesterov == (row["nesterov"] == "1")
    assert ours.clip == (10 if row["clip"] == "10" else None)
    assert ours.sampling == ("bernoulli" if row["sampling"] == "bernoulli" else ours.sampling)
    assert (ours.weights == "uniform") == (row["aggregation"] == "uniform")
    assert (ours.eval_model == "all") == ("average of all" in row["evaluation"])
    target = re.search(r"rounds to (\d+)%|target (\d+)%", row["evaluation"] + row["method_hyperparameters"])
    if target:
        assert ours.target == int(target[1] or target[2]) / 100
    bound = re.search(r"T/2>=(\d+)|(\d+)<=T<=(\d+)", row["unknown_or_provisional"])
    if bound:
        assert ours.rounds >= (2 * int(bound[1]) if bound[1] else int(bound[2]))
        assert bound[1] or ours.rounds <= int(bound[3])


@pytest.mark.parametrize("name", presets())
def test_methods_are_those_of_the_list(name: str, listed: dict[str, dict[str, str]]) -> None:
    def ours(text: str) -> str:
        method, *options = text.split()
        return method + "".join(f"(n={option[-1]})" for option in options)

    wanted = [m.lower().replace("(n=2)", "") for m in listed[name]["methods"].split(";")]
    assert [ours(text) for text in preset(name).methods] == wanted


@pytest.mark.parametrize("name", presets())
def test_strengths_are_those_of_the_list(name: str, listed: dict[str, dict[str, str]]) -> None:
    text = listed[name]["method_hyperparameters"]
    text = re.sub(r"\(.*?\)|without MAN|, 0.01 with MAN|GradAug (n=\d )?mu=\S+|n=\d|for \S+", "", text)
    found = dict(re.findall(r"([A-Za-z_][A-Za-z_ ]*?) ?= ?([0-9.e-]+)", text))
    told = {OPTIONS[key.strip()]: float(v) for key, v in found.items() if key.strip() in OPTIONS}
    assert {key: preset(name).options[key] for key in told} == told
    if name.startswith("fedalign"):
        assert told  # the expression finds something


@pytest.mark.parametrize("name", presets())
def test_every_method_and_option_exists(name: str) -> None:
    there = preset(name)
    for text in there.methods:
        method, *options = text.split()
        given = dict(option.split("=") for option in options)
        _, resolved, use = there.resolve({"method": method}, given)
        parse_method(method).values(resolved, "paper")
        assert set(use.provisional) <= {*Settings.model_fields, *resolved}
    assert set(there.options) <= {option.name for record in OURS for option in record.options}
    parse(Settings, {**there.settings, **there.code}, name)


def test_what_the_user_sets_takes_the_presets_place() -> None:
    fields, options, use = preset("fedfor/t2/col3").resolve(
        {"method": "fedfor", "rounds": 5, "seed": 7, "clients": 10, "clients_limit": 2},
        {"fedfor.alpha": "0.3"},
    )
    assert (fields["rounds"], fields["seed"], fields["batch_size"]) == (5, 7, 128)
    assert options == {"fedfor.alpha": "0.3"}
    assert use.overridden == (
        "rounds 100 (provisional) → 5", "clients_limit unset → 2", "fedfor.alpha 0.1 (provisional) → 0.3",
    )  # fmt: skip
    assert set(use.provisional) == {"augmentation", "epochs", "phi", "rho"}


def test_a_method_that_is_not_in_the_table_is_a_departure() -> None:
    fields, _, use = preset("man/t2/delta0.3").resolve({"method": "scaffold"}, {})
    assert (fields["method"], use.overridden) == ("scaffold", ("method: scaffold is not in the table",))


@pytest.mark.parametrize(
    ("name", "method", "option", "value"),
    [
        ("man/t1/tinyimagenet/iid", "fedsam", "sam.rho", "0.03"),
        ("man/t1/tinyimagenet/iid", "fedsam+man", "sam.rho", "0.01"),
        ("man/t1/cifar100/iid", "fedasam", "asam.rho", "0.5"),
        ("man/t1/cifar100/iid", "fedasam+man", "asam.rho", "0.1"),
        ("man/t1/cifar100/delta0.3", "fedasam+man", "asam.rho", "0.5"),
    ],
)
def test_options_may_depend_on_the_sum(name: str, method: str, option: str, value: str) -> None:
    assert preset(name).resolve({"method": method}, {})[1][option] == value


def test_the_codes_reading_is_a_bundle_of_settings() -> None:
    paper = preset("fedalign/t1").resolve({}, {})[0]
    code = preset("fedalign/t1").resolve({"reading": "code", "weights": "n_k"}, {})[0]
    assert "weights" not in paper
    assert (code["weights"], code["optimizer_state"], code["eval_drop_last"]) == ("n_k", "client", True)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UserError, match=r"did you mean 'fedalign/t1'\?"):
        preset("fedalign/t11")


def test_a_group_takes_back_what_its_model_calls_provisional() -> None:
    there: Preset = preset("man/t1/tinyimagenet/iid")
    assert there.unknown == {}
    assert set(preset("man/t1/cifar100/iid").unknown) == {"speed.rho", "man.zeta"}


def test_what_the_table_itself_varies_is_no_departure() -> None:
    _, options, use = preset("fedalign/t5").resolve({"method": "gradaug"}, {"gradaug.n": "1"})
    assert (options["gradaug.n"], use.overridden) == ("1", ())
    assert preset("fedalign/t5").resolve({"method": "gradaug"}, {"gradaug.n": "7"})[2].overridden == (
        "gradaug.n 2 → 7",
    )


def test_values_are_compared_and_not_their_spelling() -> None:
    _, _, use = preset("man/t1/cifar100/iid").resolve(
        {"method": "fedavg+man", "precision": "bf16"}, {"man.zeta": "1.5e-1"}
    )
    assert use.overridden == ("precision fp32 → bf16",)
    assert set(use.provisional) == {"man.zeta"}


def test_a_client_keeps_its_momentum_only_where_all_take_part() -> None:
    states = {
        name: preset(name).resolve({"reading": "code"}, {})[0]["optimizer_state"]
        for name in presets()
        if name.startswith("fedalign")
    }
    sampled = {name for name in states if preset(name).settings["participation"] != 1}
    assert len(sampled) == 6
    assert {name for name, state in states.items() if state == "round"} == sampled
