import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.federated.client.state import ClientState
from fedscope.federated.methods import METHODS, known, parse, set_aside
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from tests.federated.cases import serving


def test_methods_add() -> None:
    method = parse("FedProx + man")
    assert method.name == "fedprox+man"
    assert method.parameter_terms == METHODS["fedprox"].parameter_terms
    assert method.task_terms == METHODS["man"].task_terms
    assert {o.name for o in method.options} == {
        "prox.mu", "prox.form", "prox.skip", "prox.split",
        "man.zeta", "man.half", "man.taps", "man.include_logits",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedprx", "did you mean 'fedprox'"),
        ("zzz", "choose from fedavg"),
        ("fedavg+", "a name lacks beside a +"),
        ("man+man", "name each part of a method once"),
        ("fedavg+fedavg", "name each part of a method once"),
        ("fedavg+man+fedavg", "name each part of a method once"),
        ("stochdepth+gradaug", "stochdepth cannot be combined with gradaug: .* dropped"),
        ("man+fedalign+stochdepth", "stochdepth cannot be combined with fedalign"),
        ("fedsam+fedasam", "fedsam and fedasam each bring an ascent step; a method has one"),
        ("fedspeed+fedsam", "each bring"),
        ("feddyn+fedadam", "feddyn and fedadam each bring a server rule"),
        ("feddc+scaffold", "each bring a server rule"),
        ("fedavgm+man+fednova", "each bring a server rule"),
        ("fedbn+fedavgm", "fedbn cannot be combined with fedavgm: .* no global value"),
    ],
)
def test_bad_sums(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(text)


@pytest.fixture
def another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Install a package whose entry point of some name leads to some object of a module."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, target: str) -> None:
        (tmp_path / "theirs.py").write_text(
            "from fedscope.federated.record.method import Method\n"
            "MINE = Method(name='mine', objective='', source='')\nTHING = 3\n"
        )
        info = tmp_path / "theirs-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: theirs\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[fedscope.methods]\n{name} = {target}\n")
        known.cache_clear()

    yield install
    known.cache_clear()


def test_another_packages_method_is_one_of_the_methods(another_package: Callable[[str, str], None]) -> None:
    another_package("mine", "theirs:MINE")
    assert parse("fedprox+mine").name == "fedprox+mine"
    assert list(known())[-1] == "mine"


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("mine", "theirs:GONE", "cannot be imported"),
        ("mine", "nowhere:MINE", "cannot be imported"),
        ("thing", "theirs:THING", "is not a fedscope Method"),
        ("other", "theirs:MINE", "is called 'mine'"),
    ],
)
def test_a_bad_entry_point_is_told_to_those_who_ask_for_it(
    another_package: Callable[[str, str], None], name: str, target: str, message: str
) -> None:
    another_package(name, target)
    assert parse("fedavg").name == "fedavg"
    with pytest.raises(UserError, match=message):
        parse(f"fedavg+{name}")


@pytest.mark.parametrize("name", ["fedavg", "fedpd"])
def test_a_taken_name_is_set_aside(another_package: Callable[[str, str], None], name: str) -> None:
    before = parse(name)
    another_package(name, "theirs:MINE")
    assert parse(name) == before
    (fault,) = set_aside()
    assert re.search(f"theirs:MINE registers '{name}', which is taken; uninstall", str(fault))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": Option("a", 1.0, "")}, r"mine: options takes a tuple of Options, not Option .*a comma"),
        ({"server_state": ("m",)}, "mine: server_state takes a tuple of Vectors, not one with str 'm'"),
        ({"server_state": [Vector("m")]}, "server_state takes a tuple of Vectors, not list"),
        ({"sends": "mine"}, "sends takes a function, not str 'mine'"),
        ({"parameter_terms": len}, "parameter_terms takes a tuple of functions, not .*a comma"),
        ({"draws": {"a": 1}}, "draws takes a mapping from texts to functions, not one with int 1"),
        ({"subnetworks": 1}, "subnetworks takes true or false, not int 1"),
        ({"source": None}, "source takes a text, not NoneType None"),
        ({"broadcast": ("v",), "server_state": (Vector("w"),)}, "broadcast names 'v', .* server_state"),
        ({"broadcast": ("v",)}, "broadcast names 'v', which is not in server_state, which has none"),
        ({"summed_memory": ("h",)}, "summed_memory names 'h', which is not in memory"),
        ({"default_clip": "mine.clip"}, "default_clip names 'mine.clip', which is not in options"),
        ({"memory": (Vector("h"), Vector("h"))}, "memory has 'h' twice"),
    ],
)
def test_a_field_of_another_type_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Method(**{"name": "mine", "objective": "", "source": "", **fields})


def test_what_a_record_is_made_of_is_checked_too() -> None:
    with pytest.raises(UserError, match=r"vector 'v': scope is one of parameters, .* not 'everything'"):
        Vector("v", "everything")  # type: ignore[arg-type]
    for scope in ("personal", "number"):
        with pytest.raises(UserError, match=rf"start='initial' is a model, and the scope is {scope}; leave"):
            Vector("v", scope, start="initial")
    with pytest.raises(UserError, match="option a: a value is a number"):
        Option("a", [], "")  # type: ignore[arg-type]


def test_a_faulty_record_breaks_only_its_own_method(
    another_package: Callable[[str, str], None], tmp_path: Path
) -> None:
    another_package("mine", "theirs:MINE")
    (tmp_path / "theirs.py").write_text(
        "from fedscope.federated.record.method import Method\n"
        "MINE = Method(name='mine', objective='', source='', server_state=('m',))\n"
    )
    assert parse("fedprox").name == "fedprox"
    (fault,) = set_aside()
    assert "server_state takes a tuple of Vectors" in str(fault)
    with pytest.raises(UserError, match=r"'mine' \(theirs:MINE\) cannot be used: method mine: server_state"):
        parse("fedprox+mine")


def test_names_inside_methods_must_differ() -> None:
    one = Method("one", "", "", options=(Option("beta", 1.0, ""),))
    other = Method("other", "", "", memory=(Vector("beta"),))
    with pytest.raises(UserError, match=r"one .*other .*'beta'"):
        one + other


def test_what_looks_at_one_client_trains_alone() -> None:
    def nothing(*_: object) -> None:
        raise AssertionError

    assert Method("a", "", "", batch_transform=nothing).trains_alone  # type: ignore[arg-type]
    assert Method("a", "", "", draws={"a": nothing}).trains_alone
    assert not Method("a", "", "", memory=(Vector("h"),)).trains_alone
    assert {name for name, m in METHODS.items() if m.trains_alone} == {
        "moon", "mixup", "stochdepth", "gradaug", "fedalign", "fedntd", "fedsol",
    }  # fmt: skip


def test_other_names_of_a_method() -> None:
    assert parse("FedPD+man").name == "feddyn+man"
    assert parse("fedGAMMA + man").name == "scaffold+fedsam+man"
    with pytest.raises(UserError, match="fedsam stands twice"):
        parse("fedgamma+fedsam")


def test_options_have_types_and_readings() -> None:
    man = METHODS["man"]
    defaults = {"man.zeta": 0.15, "man.half": False, "man.taps": "code", "man.include_logits": False}
    assert man.values({}, "paper") == defaults
    assert man.values({}, "code") == defaults | {"man.half": True}
    given = {"man.half": "false", "man.zeta": "0.3", "man.taps": "relu"}
    assert man.values(given, "code") == defaults | {"man.zeta": 0.3, "man.taps": "relu"}
    for name, option, paper, code in (
        ("moon", "moon.first", "init", "received"),
        ("scaffold", "cv.steps", "actual", "nominal"),
    ):
        record = METHODS[name]
        assert [record.values({}, "paper")[option], record.values({}, "code")[option]] == [paper, code]
    n = METHODS["gradaug"].values({"gradaug.n": "4"}, "paper")["gradaug.n"]
    assert (n, type(n)) == (4, int)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"man.zta": "1"}, "did you mean 'man.zeta'"),
        ({"man.zeta": "much"}, "finite number"),
        ({"man.zeta": "-1"}, "finite number"),
        ({"man.zeta": "nan"}, "finite number"),
        ({"man.half": "yes"}, "true or false"),
        ({"prox.split": "both"}, "loss, weight_decay"),
        ({"prox.form": "cube"}, "squared, norm"),
    ],
)
def test_bad_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse("fedprox+man").values(given, "paper")


def test_a_bound_that_is_left_out_is_said_to_be() -> None:
    with pytest.raises(UserError, match=r"avgm\.beta is a finite number from 0 to below 1, not '1'"):
        parse("fedavgm").values({"avgm.beta": "1"}, "paper")
    assert Option("a", 0.5, "", within=(0.0, 1.0)).bounds() == "from 0 to 1"


def sender(**fields: Any) -> Method:
    return Method(name="sender", objective="", source="", sends=lambda at: at.kept * 1.5, **fields)


@pytest.mark.parametrize("name", ["feddyn", "fedspeed", "feddc"])
def test_a_rule_that_keeps_what_was_sent_is_not_added_to_one_that_sends(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} cannot be combined with sender, which sends another model"):
        METHODS[name] + sender()
    with pytest.raises(UserError, match=f"{name} cannot be combined with sender"):
        sender() + METHODS[name]


RULED = sorted(name for name, record in METHODS.items() if record.server)


@pytest.mark.parametrize("name", RULED)
def test_a_server_rule_moves_the_model_that_is_kept(name: str) -> None:
    """Where the clients have not moved, what was sent is not in the server's next model."""
    if METHODS[name].only_keeps:
        return
    rule, generator = METHODS[name].server, torch.Generator().manual_seed(0)
    kept, sent, mean = (torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(3))
    assert rule is not None

    def after(kept: Tensor, mean: Tensor) -> Tensor:
        state = {v.name: torch.zeros(5, dtype=torch.float64) for v in METHODS[name].server_state}
        sums = {v.name: torch.ones(5, dtype=torch.float64) for v in METHODS[name].uploads}
        return rule(serving(name, mean, sent, state, kept=kept, sums=sums))[0]

    torch.testing.assert_close(after(kept, mean) - kept, after(sent, mean) - sent)
    if not METHODS[name].uploads or name == "scaffold":
        torch.testing.assert_close(after(kept, sent), kept)


def test_personal_tensors_need_a_memory() -> None:
    with pytest.raises(ValueError, match=r"Vector\('personal', 'personal'\)"):
        Method(name="head", objective="", source="", personal=lambda model, _: ["fc.weight"])


@pytest.mark.parametrize("seen", [False, True])
def test_another_methods_personal_tensors_are_masked_as_fedbns_are(seen: bool) -> None:
    head = Method(
        name="head", objective="", source="", personal=lambda model, _: ["1.weight"],
        memory=(Vector("personal", "personal"),), terms_see_personal=lambda _: seen,
    )  # fmt: skip
    model = FlatModel(nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)))
    method = METHODS["fedprox"] + head
    state = ClientState(model, method, method.values({}, "paper"))
    w, anchor = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    assert state.where_shared(w, anchor).tolist() == [1.0, 2.0, 3.0 * seen]
    assert state.masked(w).tolist() == [1.0, 2.0, 3.0 * seen]


def test_a_record_names_a_weighting_and_settings_that_there_are() -> None:
    with pytest.raises(UserError, match="weights is 'samples'; it takes n_k, n_used, uniform"):
        Method(name="mine", objective="l", source="s", weights="samples")  # type: ignore[arg-type]
    bound = Required("learning_rate", 0.1, "because")
    with pytest.raises(UserError, match="required_settings names 'learning_rate', which is no setting"):
        Method(name="mine", objective="l", source="s", required_settings=(bound,))


def test_what_recalibrates_trains_alone() -> None:
    mine = Method(name="mine", objective="l", source="s", recalibration=lambda options: "report")
    assert mine.trains_alone
