import pytest

from fedscope.errors import UserError
from fedscope.federated.methods import METHODS, parse


def test_methods_add() -> None:
    method = parse("FedProx + man")
    assert method.name == "fedprox+man"
    assert method.anchored == METHODS["fedprox"].anchored
    assert method.task == METHODS["man"].task
    assert {o.name for o in method.options} == {
        "prox.mu", "prox.form", "prox.skip", "prox.split", "man.zeta", "man.half", "man.include_logits",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedprx", "did you mean 'fedprox'"),
        ("zzz", "choose from fedavg"),
        ("fedavg+", "unknown method ''"),
        ("man+man", "name each part of a method once"),
        ("fedavg+fedavg", "name each part of a method once"),
        ("fedavg+man+fedavg", "name each part of a method once"),
        ("stochdepth+gradaug", "stochdepth cannot be combined with gradaug: .* dropped"),
        ("man+fedalign+stochdepth", "stochdepth cannot be combined with fedalign"),
        ("fedsam+fedasam", "fedsam and fedasam each bring an ascent step; a method has one"),
        ("fedsam+feddyn", "cannot be combined with feddyn: .* it is fedspeed"),
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


def test_options_have_types_and_readings() -> None:
    man = METHODS["man"]
    assert man.values({}, "paper") == {"man.zeta": 0.15, "man.half": False, "man.include_logits": False}
    assert man.values({}, "code")["man.half"] is True
    assert man.values({"man.half": "false", "man.zeta": "0.3"}, "code") == {
        "man.zeta": 0.3, "man.half": False, "man.include_logits": False,
    }  # fmt: skip


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
