from fedscope.federated.methods import METHODS
from tests.cli.conftest import Command


def test_list_has_every_method_with_its_objective_and_source(fedscope: Command) -> None:
    listed = fedscope("methods", "list", "--json").json
    assert [entry["name"] for entry in listed] == list(METHODS)
    assert all(entry[key] for entry in listed for key in ("objective", "source", "place"))
    text = fedscope("methods", "list").out
    assert all(name in text for name in METHODS)
    assert "fedpd is feddyn" in text


def test_show_says_what_is_kept_sent_and_set(fedscope: Command) -> None:
    text = fedscope("methods", "show", "fedcurv").out
    assert "curv.F (P), curv.Fw (P)" in text
    assert "the model + curv.u (P), curv.v (P)" in text
    assert "[empirical | model]" in text
    facts = fedscope("methods", "show", "fednova", "--json").json
    assert facts["from_a_client"] == "the model + nova.a (1)"  # Δ_k/a_k goes in the place of w_k
    assert fedscope("methods", "show", "fedbn", "--json").json["to_a_client"] == "the model without BatchNorm"
    options = {o["name"]: o for o in fedscope("methods", "show", "man", "--json").json["options"]}
    assert (options["man.half"]["default"], options["man.half"]["code"]) == (False, True)


def test_list_says_what_a_method_costs_and_claims(fedscope: Command) -> None:
    listed = {entry["name"]: entry for entry in fedscope("methods", "list", "--json").json}
    assert all(entry["family"] for entry in listed.values())
    columns = ("keeps", "down", "up", "gradients", "flatness")
    found = {name: tuple(listed[name][column] for column in columns) for name in listed}
    assert found["fedavg"] == ("0", "P", "P", 1, False)
    assert found["fedsam"] == ("0", "P", "P", 2, True)
    assert found["fedlesam"] == ("P", "P", "P", 1, True)
    assert found["fedsmoo"] == ("2P", "2P", "2P", 2, True)
    assert found["fedgf"] == ("0", "2P + 1", "P + 1", 2, True)
    assert found["fedwmsam"] == ("P", "3P + 1", "2P + 1", 1, True)
    assert found["fedbn"][:3] == ("BatchNorm", "P", "P")
    both = fedscope("methods", "show", "fedlesam-s", "--json").json
    assert (both["family"].count(";"), both["gradients"], both["flatness"]) == (1, 1, True)


def test_show_says_where_a_sum_enters_the_step(fedscope: Command) -> None:
    places = [fedscope("methods", "show", name, "--json").json["place"] for name in ("fedavg", "fedavg+man")]
    assert places == ["nothing is added to the local step", "in the task loss"]


def test_show_takes_sums_and_refuses_what_does_not_add_up(fedscope: Command) -> None:
    assert fedscope("methods", "show", "feddyn+man", "--json").json["name"] == "feddyn+man"
    refused = fedscope("methods", "show", "gradaug+stochdepth")
    assert refused.code == 2
    assert "StochDepth may have dropped" in refused.err
