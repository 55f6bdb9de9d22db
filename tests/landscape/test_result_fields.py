"""Every field of a result beside an oracle of its own: what nothing reads back may be wrong for long.

One table: of each class in ``RESULTS`` a result on a small problem, and of each field what it is by the dense
or the closed form. A field that has no oracle fails the last test.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.landscape import Hessian, orthogonal
from fedscope.landscape.heterogeneity.one_round.at_weights import LossAtWeights, _largest, cell
from fedscope.landscape.heterogeneity.one_round.paired import Paired
from fedscope.landscape.sharpness.block_spectra import mean_spectral_distance
from fedscope.landscape.sharpness.pac_bayes import NoiseLevel, pac_bayes_sigma
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.spectral_results import Estimate
from tests.landscape.cases import mlp
from tests.landscape.gradients.populations import Clients
from tests.landscape.sharpness.cases import Quadratic, matrix_of, mean_of, quadratic
from tests.landscape.sharpness.test_block_spectra import ONE, OTHER, THIRD, density
from tests.landscape.sharpness.test_pac_bayes import draws

Oracle = Callable[[Any], Any]


class Counted(Quadratic):
    """A network that counts its passes."""

    passes = 0

    def forward(self, matrices: Tensor, slopes: Tensor) -> Tensor:
        Counted.passes += 1
        return super().forward(matrices, slopes)


@cache
def noise() -> tuple[NoiseLevel, Tensor, Tensor, float]:
    """σ of a quadratic, with its deviation at σ = 1 by draw and by batch, and its passes over the samples."""
    net, batches = quadratic(samples=24, batch_size=4)
    Counted.passes = 0
    counted = Counted(net.w.detach())
    found = pac_bayes_sigma(counted, mean_of, batches, of="loss", target=0.1, pairs=20)
    z = draws(0, 20, 6)
    forms = torch.stack(
        [torch.einsum("mi,ij,mj->m", z, inputs[0].mean(0), z) / 2 for inputs, _ in batches]
    )  # (B, M)
    assert torch.allclose(forms.mean(0), torch.einsum("mi,ij,mj->m", z, matrix_of(batches), z) / 2)
    return found, forms.mean(0), forms.mean(1), Counted.passes / len(batches)


def to_first_order(forms: Tensor) -> Any:
    """σ − (D − D̄)/D̄'(σ), with D = σ² q: the more a draw or a batch deviates, the less noise it bears."""
    value, mean = noise()[0].value, float(forms.mean())
    expected = value * (1 - (forms / mean - 1) / 2)
    return pytest.approx(expected.tolist(), abs=0.1 * value * float(forms.std() / mean))


def reach(forms: Tensor) -> float:
    relative: float = float(forms.std() / forms.mean()) / len(forms) ** 0.5 / 2
    return noise()[0].value * relative


def ends_about(stderr: float, quantile: float) -> Callable[[tuple[float, float]], bool]:
    """The interval in σ of that in the deviation, whose ends are at √(1 ± 2t·stderr/σ) of the value."""

    def holds(ends: tuple[float, float]) -> bool:
        value = noise()[0].value
        away = 2 * quantile * stderr / value
        expected = [value * max(0.0, 1 - away) ** 0.5, value * (1 + away) ** 0.5]
        return all(abs(end - other) < 0.1 * value for end, other in zip(ends, expected, strict=True))

    return holds


@cache
def distance() -> Estimate:
    return mean_spectral_distance(
        {"a": density(ONE, 8, 1), "b": density(OTHER, 12, 2), "c": density(THIRD, 40, 0)}, sigma=0.5
    )


@cache
def operator() -> Hessian:
    case = mlp()
    return Hessian(case.model, case.loss_fn, case.batches)


@cache
def dense() -> Tensor:
    return operator().matmat(torch.eye(operator().shape[0], dtype=torch.float64)).double()


BIAS, LOOSE = 0.2, 0.7


@cache
def largest() -> Paired:
    """λ_max with a bias that is known to ``LOOSE``."""
    pairs = top_eigenpairs(operator(), k=1, tol=1e-3, seed=0, by_sample=False)
    given: dict[str, Any] = {
        "bias_data": torch.tensor([BIAS]).double(), "stderr_bias": torch.tensor([LOOSE]).double(),
    }  # fmt: skip
    given["residuals"] = torch.tensor([0.01], dtype=torch.float64)
    return _largest(operator(), "these", replace(pairs, **given))


@cache
def exact() -> LossAtWeights:
    return cell(
        operator(), "these", quantities=("lambda_max", "trace"), sampler=orthogonal, probes=10**6, k=2
    )


def batch_traces() -> list[float]:
    case = mlp()
    parts = (Hessian(case.model, case.loss_fn, [batch]) for batch in case.batches)
    eye = torch.eye(operator().shape[0], dtype=torch.float64)
    return [float(part.matmat(eye).diagonal().sum()) for part in parts]


RESULTS: dict[str, tuple[Callable[[], Any], Mapping[str, Any]]] = {
    "NoiseLevel": (
        lambda: noise()[0],
        {
            "value": lambda found: found == pytest.approx((0.1 / float(noise()[1].mean())) ** 0.5, rel=1e-2),
            "ends": lambda found: ends_about(noise()[0].stderr_draws, 2.09)(found),
            "population_ends": lambda found: ends_about(
                math.hypot(noise()[0].stderr_draws, noise()[0].stderr_data), 2.1
            )(found),
            "deviation": lambda found: (
                found == pytest.approx(noise()[0].value ** 2 * float(noise()[1].mean()), rel=1e-9)
            ),
            "stderr_draws": lambda found: found == pytest.approx(reach(noise()[1]), rel=0.1),
            # without what the draws add to the spread of the batches, which is at most half of its square
            "stderr_data": lambda found: 0.63 * reach(noise()[2]) < found < 1.1 * reach(noise()[2]),
            "cost": lambda found: (
                (found.forwards, found.gradients, found.products) == (pytest.approx(noise()[3], abs=1), 0, 0)
            ),
            "seed": 0,
            "dof_draws": 19,
            "dof_data": 5,
            "draws": lambda found: list(found) == to_first_order(noise()[1]),
            "batches": lambda found: list(found) == to_first_order(noise()[2]),
        },
    ),
    "Estimate": (
        distance,
        {
            "value": lambda found: (
                abs(
                    found
                    - mean_spectral_distance(
                        {"a": density(ONE, 40, 0), "b": density(OTHER, 40, 0), "c": density(THIRD, 40, 0)},
                        sigma=0.5,
                    ).value
                )
                < 4 * distance().stderr
            ),
            "stderr": lambda found: 0 < found < distance().value,
            "dof": (8 - 1) + (12 - 1),  # a complete set has no error
            "slope": 0.0,
            "low": 0.0,
            "high": pytest.approx(math.log(2)),
            "ends": None,
        },
    ),
    "Paired": (
        largest,
        {
            "value": lambda found: (
                found == pytest.approx(float(torch.linalg.eigvalsh(dense())[-1]), rel=1e-5)
            ),
            "parts": lambda found: (
                list(found) == ["these"]
                and found["these"].sizes == (1,) * sum(operator().weights or ())
                and float(found["these"].probes) == pytest.approx(largest().value, rel=1e-6)
            ),
            "bias": pytest.approx(BIAS),
            "bound": pytest.approx(0.01 + LOOSE),
            "low": -math.inf,
            "high": math.inf,
        },
    ),
    "LossAtWeights": (
        exact,
        {
            "loss": None,
            "lambda_max": lambda found: found.value == pytest.approx(largest().value, rel=1e-3),
            "trace": lambda found: (
                (found.value, found.stderr_probe, found.parts["these"].estimates[0].tolist())
                == (pytest.approx(float(dense().trace())), 0, pytest.approx(batch_traces(), rel=1e-4))
            ),
            "space": lambda found: found.k == 2,
            "converged": True,
            "matvecs": lambda found: found > operator().shape[0],
        },
    ),
}
FIELDS = [(name, field) for name, (_, fields) in RESULTS.items() for field in fields]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_is_what_its_oracle_says(name: str, field: str) -> None:
    make, fields = RESULTS[name]
    found, expected = getattr(make(), field), fields[field]
    if callable(expected):
        assert expected(found), f"{name}.{field} is {found}"
    else:
        assert found == expected


@pytest.mark.parametrize("client", range(3))
def test_all_of_a_finite_population_leaves_the_error_of_each_clients_trace_alone(client: int) -> None:
    """A trace depends on which samples share a batch, whoever the client is."""
    clients = Clients.of(6, 3, sizes=(4,) * 5)
    found = clients.measured(clients.draw(0), finite=0.0)
    assert found.clients[client].trace.stderr > 0
    assert found.clients[client].square.stderr == found.apart[client].stderr == 0


@pytest.mark.parametrize("name", RESULTS)
def test_every_field_has_an_oracle(name: str) -> None:
    make, fields = RESULTS[name]
    found = make()
    assert type(found).__name__ == name
    assert {field.name for field in dataclasses.fields(found)} == fields.keys()
