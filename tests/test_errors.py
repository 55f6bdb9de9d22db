"""The hint at what a mistyped name was meant to be, and what other programs say in short."""

from fedscope.errors import shortened, suggestion


def test_the_nearest_known_name_is_suggested() -> None:
    assert suggestion("fedavgg", ["man", "fedavg", "feddyn"]) == "; did you mean 'fedavg'?"
    assert suggestion("FedAvg", ["fedavg"]) == suggestion("fedavg", ["FedAvg"]).lower()
    assert (
        suggestion("man/t1", ["fedalign/t1", "man/t1/cifar100/iid"])
        == "; did you mean 'man/t1/cifar100/iid'?"
    )
    assert suggestion("resnet", iter(["ResNet20"])) == "; did you mean 'ResNet20'?"


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggestion("scaffold", ["man", "fedavg"]) == ""
    assert suggestion("", ["man"]) == ""
    assert suggestion("man", []) == ""


def test_neither_case_counts() -> None:
    assert suggestion("FEDAVGG", ["fedprox", "fedavg"]) == "; did you mean 'fedavg'?"
    assert suggestion("gru", ["GRUs"]) == "; did you mean 'GRUs'?"


def test_what_another_program_says_is_one_line_of_whole_words() -> None:
    assert shortened(ValueError("no\n such  file")) == "no such file"
    assert shortened("one two three", 9) == "one two …"
    assert shortened("one two three", 8) == "one …"
