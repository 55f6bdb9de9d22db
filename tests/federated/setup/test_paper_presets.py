"""The presets say what the papers' tables say, compared with their transcription."""

import pytest

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError
from fedscope.federated.methods import OURS
from fedscope.federated.methods import parse as parse_method
from fedscope.federated.setup.paper_presets import Preset, preset, presets
from tests.papers import read

UNPRINTED: dict[str, tuple[tuple[object, ...], ...]] = {
    "fedalign": (("fixed_fraction", "fedalign", True),),
    "man": (("bernoulli", "man", None),),
    "fedfor": (("all", None, None), ("all", "fedalign", None), ("all", "small", None)),
    "fedasam": (("fixed_fraction", "fedasam", None),),
    "fedgloss": (("fixed_fraction", "fedgloss", None),),
}  # sampling, augmentation, drop_last
LISTED = {row["preset"]: row for row in read("presets")}


def test_every_experiment_of_the_papers_is_a_preset() -> None:
    assert list(presets()) == list(LISTED)


@pytest.mark.parametrize("name", presets())
def test_settings_are_those_of_the_papers(name: str) -> None:
    row, there = LISTED[name], preset(name)
    ours = parse(Settings, there.settings, name)
    assert there.table.startswith(row["table"])
    for field in row.keys() & Settings.model_fields.keys():
        if row[field]:
            assert (field, value(row[field])) == (field, getattr(ours, field))
    if not row["rounds"]:
        assert "rounds" in there.unknown
        assert int(row["rounds_least"] or 1) <= ours.rounds <= int(row["rounds_most"] or 500)
    assert (ours.weights == "uniform") == (row["weights"] == "uniform")
    assert (ours.eval_model == "all") == (row["eval_model"] == "all")
    if not row["partition"].startswith(("dirichlet", "longtail")):
        assert ours.alpha is None


@pytest.mark.parametrize("name", presets())
def test_what_the_tables_do_not_print_is_one_for_each_paper(name: str) -> None:
    there = preset(name)
    ways = tuple(there.settings.get(key) for key in ("sampling", "augmentation", "drop_last"))
    assert ways in UNPRINTED[name.partition("/")[0]]
    own = {option.name: option.default for record in OURS for option in record.options}
    if name.startswith("fedalign"):
        assert there.options["fedalign.mu"] == own["fedalign.mu"] == 0.45


def test_what_a_table_does_not_restate_is_provisional() -> None:
    told = {name: set(preset(name).unknown) for name in presets() if name.startswith("fedalign/t7/")}
    assert told == {
        "fedalign/t7/cifar10/C16": {"alpha", "epochs", "rounds"},
        "fedalign/t7/cifar10/C64s100": {"alpha", "epochs"},
        "fedalign/t7/imagenet200/C16": {"alpha", "epochs", "rounds", "batch_size"},
        "fedalign/t7/imagenet200/C32s50": {"alpha", "epochs", "batch_size"},
    }


def value(text: str) -> object:
    words = {"yes": True, "no": False, "none": None}
    if text in words:
        return words[text]
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", presets())
def test_methods_are_those_of_the_papers(name: str) -> None:
    assert [text.replace(" ", ":") for text in preset(name).methods] == LISTED[name]["methods"].split()


@pytest.mark.parametrize("name", presets())
def test_strengths_are_those_of_the_papers(name: str) -> None:
    told = dict(pair.split("=") for pair in LISTED[name]["strengths"].split())
    assert {key: preset(name).options[key] for key in told} == {key: float(v) for key, v in told.items()}
    assert told or not name.startswith("fedalign")


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
    with pytest.raises(UserError, match="'fedalign/t1'"):
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
