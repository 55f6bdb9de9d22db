"""FedAlign's Tables 5 and 7 (Mendieta et al. 2022), re-derived from shapes."""

from functools import cache
from itertools import pairwise
from typing import cast

import pytest
import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.costs.expected import expected_costs, options, square_law, stochdepth_passes
from fedscope.federated.costs.training_cost import ClientCost, cost
from fedscope.federated.setup.federation import prepare
from fedscope.models.catalogue import NETWORKS, build, outline
from fedscope.models.network_cost import multiply_accumulates
from fedscope.models.products import products
from fedscope.models.resnet import ResNet
from fedscope.models.slimmable import slim

MILLION, BILLION = 1e6, 1e9


def network(name: str, *, head: bool = False) -> ResNet:
    return cast(ResNet, outline(name, NETWORKS[name].classes, 3, head=head))


@cache
def costs(name: str) -> dict[str, ClientCost]:
    return expected_costs(network(name), network(name, head=True), 3, NETWORKS[name].side)


@pytest.mark.parametrize(
    ("method", "millions", "parameters"),
    [
        ("fedavg", 87.25, 605_460),
        ("fedprox", 87.25, 2 * 605_460),
        ("moon", 262.16, 3 * 737_044),
        ("fedalign", 89.12, 605_460),
        ("stochdepth", 83.13, 605_460),
    ],
)
def test_cifar(method: str, millions: float, parameters: int) -> None:
    found = costs("resnet56_bottleneck")[method]
    assert found.multiply_accumulates / MILLION == pytest.approx(millions, abs=0.005)
    assert found.parameters_held == parameters


@pytest.mark.parametrize(
    ("method", "billions", "parameters"),
    [
        ("fedavg", 1.8137, 11_269_512),
        ("fedprox", 1.8137, 2 * 11_269_512),  # 22.54 M; the paper prints another network's 22.42
        ("moon", 5.442, 3 * 11_612_296),
        ("stochdepth", 1.731, 11_269_512),
        ("fedalign", 1.8137 + 0.0257, 11_269_512),  # the paper prints 1.93
    ],
)
def test_imagenet(method: str, billions: float, parameters: int) -> None:
    found = costs("resnet18")[method]
    assert found.multiply_accumulates / BILLION == pytest.approx(billions, abs=0.0005)
    assert found.parameters_held == parameters


def test_the_papers_schedule_of_stochastic_depth() -> None:
    published = {**options("stochdepth"), "sd.schedule": "paper"}
    for name, millions in (("resnet56_bottleneck", 82.9), ("resnet18", 1720)):
        layers = products(network(name), 3, NETWORKS[name].side)
        passes = stochdepth_passes(network(name), layers, published)
        assert passes / MILLION == pytest.approx(millions, rel=6e-4)


@pytest.mark.parametrize(("count", "millions"), [(2, 170.77), (3, 217.43), (4, 264.09)])
def test_gradaug_as_printed_on_cifar(count: int, millions: float) -> None:
    whole = costs("resnet56_bottleneck")["fedavg"].multiply_accumulates
    assert square_law(whole, 32, options("gradaug", count)) / MILLION == pytest.approx(millions, abs=0.01)


def test_gradaug_with_one_sub_network_as_printed() -> None:
    one = options("gradaug", 1)
    whole = {name: costs(name)["fedavg"].multiply_accumulates for name in ("resnet56_bottleneck", "resnet18")}
    random = {**one, "gradaug.widths": "uniform"}  # Table 5 prices it as a random width, Table 7 as the least
    assert square_law(whole["resnet56_bottleneck"], 32, random) / MILLION == pytest.approx(133.91, abs=0.005)
    assert square_law(whole["resnet18"], 224, one) / BILLION == pytest.approx(2.530, abs=0.0005)
    assert square_law(whole["resnet18"], 224, options("gradaug", 2)) / BILLION == pytest.approx(
        3.437, abs=0.0005
    )


def test_gradaug_as_it_runs() -> None:
    """At 0.8 40.4 M and not 36.9, at a random width 52.7 M and not 46.7."""
    found, whole = costs("resnet56_bottleneck"), 87_237_632 + 16_384
    rows = [found[f"gradaug n={count}"].multiply_accumulates / MILLION for count in (1, 2, 3, 4)]
    assert rows[0] - whole / MILLION == pytest.approx(40.4, abs=0.05)
    assert [b - a for a, b in pairwise(rows)] == pytest.approx([52.7] * 3, abs=0.05)


def test_random_widths_are_averaged() -> None:
    """On the small network every width of a fine grid is run."""
    model, total = build("resnet_digits", 10, 3, torch.Generator()).train(), 0.0
    least, grid = 0.8, 20
    for side in (8, 7, 6, 5):
        x = torch.zeros(1, 3, side, side)
        for step in range(grid):
            width = least + (1 - least) * (step + 0.5) / grid
            total += multiply_accumulates(lambda x=x, width=width: slim(model, x, width))  # type: ignore[misc]
    found = expected_costs(network("resnet_digits"), network("resnet_digits", head=True), 3, 8)
    more = found["gradaug n=2"].multiply_accumulates - found["gradaug n=1"].multiply_accumulates
    assert more == pytest.approx(total / (4 * grid), rel=0.01)


@pytest.mark.parametrize("method", ["fedavg", "moon", "stochdepth", "gradaug", "fedalign"])
def test_a_run_counts_the_same(method: str) -> None:
    """What the steps of a run on digits do, chance averaged over draws."""
    settings = Settings(method=method, reading="code", clients=2, train_samples=100, test_samples=10)
    counted = cost(prepare(settings, {}), draws=60)
    plain, projected = (cast(ResNet, outline("resnet_digits", 10, 1, head=head)) for head in (False, True))
    row = expected_costs(plain, projected, 1, 8)["gradaug n=2" if method == "gradaug" else method]
    exact = method in ("fedavg", "moon", "fedalign")
    assert counted.multiply_accumulates == pytest.approx(
        row.multiply_accumulates, rel=1e-9 if exact else 0.05
    )
    assert counted.parameters_held == row.parameters_held
