"""Which quantities a change of the weights moves that leaves the network as a function what it is.

The table of docs/explanation/sharpness.md states what is asserted here.
"""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.landscape import Batches, Hessian, orthogonal, spectral_density, top_eigenpairs, trace
from fedscope.landscape.sharpness.average_case import average_sharpness, low_pass_loss
from fedscope.landscape.sharpness.block_spectra import mean_spectral_distance
from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm
from fedscope.landscape.sharpness.pac_bayes import pac_bayes_sigma
from fedscope.landscape.sharpness.relative_flatness import (
    largest_relative_flatness,
    last_linear,
    relative_flatness,
)
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, Search
from fedscope.landscape.sharpness.sharpness_result import Sharpness
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from tests.landscape.sharpness.cases import labelled, relu_net, whole

Measure = Callable[[nn.Module, Batches], float]


def rescaled(net: nn.Sequential, factor: float = 4.0) -> nn.Sequential:
    """The ingoing weights of a ReLU pair of layers times the factor, the outgoing ones over it."""
    other = copy.deepcopy(net)
    with torch.no_grad():
        other[-3].weight.mul_(factor)  # type: ignore[operator]
        other[-1].weight.div_(factor)  # type: ignore[operator]
    return other


def before_norm(net: nn.Sequential, factor: float = 4.0) -> nn.Sequential:
    """The weights before a BatchNorm times the factor, with its statistics of the same samples."""
    other = copy.deepcopy(net)
    norm = other[1]
    with torch.no_grad():
        other[0].weight.mul_(factor)  # type: ignore[operator]
        norm.running_mean.mul_(factor)  # type: ignore[operator]
        norm.running_var.mul_(factor**2).add_(norm.eps * (factor**2 - 1))  # type: ignore[operator]
    return other


def operator(net: nn.Module, batches: Batches, name: str | None = None) -> Hessian:
    return Hessian(net, cross_entropy, batches, parameters=[name] if name else None)


def worst(p: float, adaptive: bool, search: Search) -> Measure:
    return lambda net, batches: (
        worst_case_sharpness(
            net, cross_entropy, batches, rho=0.05, p=p, adaptive=adaptive, search=search
        ).value
    )


def average(p: float, adaptive: bool) -> Measure:
    return lambda net, batches: (
        average_sharpness(net, cross_entropy, batches, rho=0.1, p=p, adaptive=adaptive, pairs=4).value
    )


def sigma(adaptive: bool) -> Measure:
    return lambda net, batches: (
        pac_bayes_sigma(
            net, cross_entropy, batches, of="loss", adaptive=adaptive, epsilon=0, pairs=2, rtol=1e-6
        ).value
    )


def distance(net: nn.Module, batches: Batches) -> float:
    """By complete sets of probes, so that nothing is random."""
    blocks = {name: operator(net, batches, name) for name, p in net.named_parameters() if p.ndim > 1}
    return mean_spectral_distance(
        {
            name: spectral_density(op, sampler=orthogonal, probes=op.shape[0], steps=10)
            for name, op in blocks.items()
        }
    ).value


def flatness(net: nn.Module, batches: Batches) -> float:
    return relative_flatness(operator(net, batches, last_linear(net)), rtol=1e-8).value


def largest(net: nn.Module, batches: Batches) -> float:
    return largest_relative_flatness(operator(net, batches, last_linear(net)), tol=1e-8).value


FOOLED: dict[str, Measure] = {
    "λ_max": lambda net, batches: float(top_eigenpairs(operator(net, batches)).values[0]),
    "trace": lambda net, batches: trace(operator(net, batches), rtol=1e-6).value,
    "SAM step": worst(2, False, OneStep()),
    "worst case, p = 2": worst(2, False, AutoPGD()),
    "worst case, p = ∞": worst(math.inf, False, AutoPGD()),
    "average case, p = 2": average(2, False),
    "average case, p = ∞": average(math.inf, False),
    "low-pass filter": lambda net, batches: (
        low_pass_loss(net, cross_entropy, batches, sigma=0.5, pairs=4).value
    ),
    "PAC-Bayes σ": sigma(False),
    "block distance": distance,
}
INVARIANT: dict[str, Measure] = {
    "ASAM step": worst(2, True, OneStep()),
    "adaptive worst case, p = 2": worst(2, True, AutoPGD()),
    "adaptive worst case, p = ∞": worst(math.inf, True, AutoPGD()),
    "adaptive average case, p = 2": average(2, True),
    "adaptive average case, p = ∞": average(math.inf, True),
    "PAC-Bayes σ in units of the weights": sigma(True),
    "Fisher–Rao, empirical": lambda net, batches: (
        fisher_rao_norm(net, cross_entropy, batches, labels="empirical").value
    ),
    "Fisher–Rao, exact": lambda net, batches: fisher_rao_norm(net, cross_entropy, batches).value,
    "κ_Tr": flatness,
    "κ_max": largest,
}
NETS = {"relu": (relu_net(), rescaled), "norm": (relu_net(norm=True), before_norm)}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("name", [*FOOLED, *INVARIANT])
def test_rescaling_fools_some_and_not_others(name: str, kind: str) -> None:
    net, change = NETS[kind]
    batches, other = labelled(), change(net)
    x, _ = batches[0]
    torch.testing.assert_close(other(x), net(x), rtol=1e-9, atol=1e-9)
    if name in INVARIANT:
        measured = INVARIANT[name]
        assert measured(other, batches) == pytest.approx(measured(net, batches), rel=1e-5)
    else:
        measured = FOOLED[name]
        assert abs(measured(other, batches) / measured(net, batches) - 1) > 0.05


def test_the_authors_search_in_an_adaptive_ball_is_fooled_where_the_definition_is_not() -> None:
    net, batches = relu_net(), labelled()
    measured = worst(2, True, AutoPGD(reading="code"))
    values = [measured(one, batches) for one in (net, rescaled(net))]
    assert abs(math.log(values[1] / values[0])) > 0.02
    assert max(values) < INVARIANT["adaptive worst case, p = 2"](net, batches)


def test_of_the_outputs_scale_only_normalised_logits_are_free() -> None:
    """Logits times a factor decide alike, with another loss (Andriushchenko et al. 2023)."""
    net, batches = relu_net(), labelled()
    louder = copy.deepcopy(net)
    with torch.no_grad():
        louder[-1].weight.mul_(4)  # type: ignore[operator]
    for adaptive in (False, True):
        values = [
            average_sharpness(
                n, cross_entropy, batches, rho=0.1, adaptive=adaptive, normalize_logits=True, pairs=4
            ).value
            for n in (net, louder)
        ]
        assert (abs(math.log(values[1] / values[0])) < 1e-6) == adaptive
    plain = [
        average_sharpness(n, cross_entropy, batches, rho=0.1, adaptive=True, pairs=4).value
        for n in (net, louder)
    ]
    assert abs(math.log(abs(plain[1] / plain[0]))) > 0.05


FINITE: dict[str, Callable[[nn.Module, Batches], Sharpness]] = {
    "average": lambda net, b: average_sharpness(net, cross_entropy, b, rho=0.1, pairs=3),
    "low pass": lambda net, b: low_pass_loss(net, cross_entropy, b, pairs=3),
    "Fisher–Rao": lambda net, b: fisher_rao_norm(net, cross_entropy, b),
    "Fisher–Rao drawn": lambda net, b: fisher_rao_norm(net, cross_entropy, b, labels="drawn"),
    "κ_Tr": lambda net, b: relative_flatness(operator(net, b, last_linear(net)), probes=4),
    "κ_max": lambda net, b: largest_relative_flatness(operator(net, b, last_linear(net))),
}


@pytest.mark.parametrize("measure", FINITE.values(), ids=FINITE)
def test_errors_over_samples_are_of_what_is_left_of_a_finite_population(
    measure: Callable[[nn.Module, Batches], Sharpness],
) -> None:
    """A quarter of the variance is gone where a quarter was drawn, all where all were."""
    inputs, targets = whole(labelled())
    endless, larger, all_ = (
        measure(relu_net(), Batches(inputs, targets, 8, population=population)).stderr_data
        for population in (None, 96, 24)
    )
    assert endless > 0
    assert larger == pytest.approx(0.75**0.5 * endless, rel=1e-6)
    assert all_ == 0
