import pytest

from fedscope.models.catalogue import NETWORKS
from tests.cli.conftest import Command


def test_list_has_every_network_with_its_source_and_sizes(fedscope: Command) -> None:
    listed = {entry["name"]: entry for entry in fedscope("models", "list", "--json").json}
    assert list(listed) == list(NETWORKS)
    assert all(entry["source"] and entry["stages"] for entry in listed.values())
    assert [name for name, entry in listed.items() if not entry["data"]] == ["resnet8", "cnn_mnist"]
    assert listed["digit_cnn6"]["parameters"] == 14_219_210
    assert listed["digit_cnn6"]["input"] == [3, 28, 28]
    text = fedscope("models", "list").out
    assert all(name in text for name in NETWORKS)
    assert "923.07" in text
    assert "imagenet200: resnet18" in text


def test_show_says_what_a_network_is_and_costs(fedscope: Command) -> None:
    text = fedscope("models", "show", "resnet56_bottleneck").out
    assert "614,452 in 176 tensors" in text
    assert "8,992; and 8,992 running statistics" in text
    assert "87,237,632 of convolutions" in text
    assert "16,384 elements into the global average pool" in text
    assert "124.12, 170.78, 217.43, 264.09 M" in text
    costs = fedscope("models", "show", "resnet56_bottleneck", "--json").json["costs"]
    assert costs["moon"] == {"multiply_accumulates": 262_155_264, "parameters_held": 3 * 737_044}
    assert {"fedavg", "fedprox", "stochdepth", "gradaug n=4", "fedalign"} <= set(costs)
    plain = fedscope("models", "show", "convnet_cifar", "--json").json
    assert "costs" not in plain
    assert plain["shortcut"] is None


def test_show_takes_another_use(fedscope: Command) -> None:
    given = ("--classes", "7", "--channels", "1", "--side", "8", "--head", "--shortcut", "B")
    facts = fedscope("models", "show", "resnet20", *given, "--json").json
    assert (facts["classes"], facts["input"], facts["shortcut"], facts["head"]) == (7, [1, 8, 8], "B", True)
    assert facts["stages"][0]["output"] == [16, 8, 8]
    assert facts["stages"][-1]["output"] == [7]
    assert facts["parameters"] == 272_474 - 2 * 9 * 16 - 3 * 65 + 2 * 65 * 64  # channels, classes, head
    assert "with a projection head" in fedscope("models", "show", "resnet20", *given).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vgg"], "unknown model 'vgg'; choose one of resnet_digits"),
        (["alexnet_bn", "--side", "62"], "takes images of 63 pixels or more, not of 62"),
        (["convnet_cifar", "--side", "64"], "takes 32-pixel images, not of 64"),
        (["convnet_cifar", "--head"], "convnet_cifar has no projection head"),
        (
            ["resnet18", "--shortcut", "B"],
            "shortcut 'B' to choose; resnet8 and resnet20 have A and B",
        ),
        (["resnet18", "--classes", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_shown_is_refused(fedscope: Command, arguments: list[str], message: str) -> None:
    done = fedscope("models", "show", *arguments)
    assert done.code == 2
    assert message in done.err
