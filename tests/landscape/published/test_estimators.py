"""Reading ``code`` against a straight-line transcription of the scripts: plain loops, no shared code."""

import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator
from fedscope.landscape.operators import empirical_risk
from fedscope.landscape.operators.products.definition import compared
from fedscope.landscape.published.estimators import (
    Loader,
    PublishedTrace,
    Resampled,
    published_comparison,
    published_eigenpairs,
    published_trace,
)
from tests.landscape.cases import matrix_operator, symmetric

SIZE, BATCH, SAMPLES = 5, 4, 47


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(5)
    layers = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Softplus(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(18, 3)
    ).double()
    layers(2 * torch.randn(30, 1, SIZE, SIZE, dtype=torch.float64) + 1)
    return layers.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(
        SAMPLES, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(8), dtype=torch.float64
    )


@pytest.fixture
def labels() -> Tensor:
    return torch.randint(3, (SAMPLES,), generator=torch.Generator().manual_seed(9))


def _flipped(images: Tensor, coins: Tensor) -> Tensor:
    return torch.stack([image.flip(-1) if coin else image for image, coin in zip(images, coins, strict=True)])


def _over(model: nn.Module) -> Callable[[Batches], Hessian]:
    return partial(Hessian, model, nn.functional.cross_entropy)


def _loader(images: Tensor, labels: Tensor, *, batches: int | None = 10, seed: int = 1) -> Loader:
    def fetch(rows: Tensor, generator: torch.Generator) -> Tensor:
        return _flipped(images[rows], torch.randint(2, (len(rows),), generator=generator))

    generator = torch.Generator().manual_seed(seed)
    return Loader(fetch, labels, batch_size=BATCH, batches=batches, generator=generator)


# -- The transcription. ------------------------------------------------------------------------------------


def transcribed_passes(images: Tensor, labels: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The loader, started again for every product: shuffled, augmented, the partial batch dropped, ten."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(SAMPLES, generator=generator).tolist()
        batches: list[tuple[Tensor, Tensor]] = []
        while len(order) >= BATCH:
            rows, order = order[:BATCH], order[BATCH:]
            if len(batches) < 10:
                coins = torch.randint(2, (BATCH,), generator=generator)
                batches.append((_flipped(images[rows], coins), labels[rows]))
        yield batches


def transcribed_product(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], v: list[Tensor]
) -> list[Tensor]:
    parameters = list(model.parameters())
    result = [torch.zeros_like(p) for p in parameters]
    seen = 0
    for inputs, targets in batches:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        along = sum((g * x).sum() for g, x in zip(gradients, v, strict=True))
        products = torch.autograd.grad(along, parameters, materialize_grads=True)  # type: ignore[arg-type]
        result = [r + len(targets) * p for r, p in zip(result, products, strict=True)]
        seen += len(targets)
    return [r / seen for r in result]


def transcribed_trace(values: list[list[float]]) -> tuple[float, list[float], int]:
    """The running mean of each iteration's block sums: at most 100, stopped where it moves by under 1e-3."""
    mean = 0.0
    for i in range(1, 101):
        previous = mean
        mean = sum(sum(blocks) for blocks in values[:i]) / i
        if abs(mean - previous) / (abs(previous) + 1e-6) < 1e-3:
            break
    return mean, [sum(column) / i for column in zip(*values[:i], strict=True)], i


def transcribed_power_iteration(
    model: nn.Module, passes: Iterator[list[tuple[Tensor, Tensor]]], k: int
) -> tuple[list[float], list[list[Tensor]], list[int]]:
    generator = torch.Generator().manual_seed(1)
    values: list[float] = []
    vectors: list[list[Tensor]] = []
    counts: list[int] = []
    for _ in range(k):
        flat = torch.randn(sum(p.numel() for p in model.parameters()), generator=generator).double()
        v = [x.view(p.shape) for x, p in zip(flat.split([p.numel() for p in model.parameters()]),
                                             model.parameters(), strict=True)]  # fmt: skip
        v = transcribed_norm(v)
        eigenvalue = None
        for i in range(1, 101):  # noqa: B007 (counted)
            for other in vectors:
                overlap = sum(float((x * y).sum()) for x, y in zip(v, other, strict=True))
                v = [x - overlap * y for x, y in zip(v, other, strict=True)]
            v = transcribed_norm(v)
            hv = transcribed_product(model, next(passes), v)
            quotient = sum(float((x * y).sum()) for x, y in zip(hv, v, strict=True))
            v = transcribed_norm(hv)
            if eigenvalue is None:
                eigenvalue = quotient
            elif abs(eigenvalue - quotient) / (abs(eigenvalue) + 1e-6) < 1e-3:
                break
            else:
                eigenvalue = quotient
        assert eigenvalue is not None
        values.append(eigenvalue)
        vectors.append(v)
        counts.append(i)
    return values, vectors, counts


def transcribed_norm(v: list[Tensor]) -> list[Tensor]:
    norm = math.sqrt(sum(float((x * x).sum()) for x in v))
    return [x / (norm + 1e-6) for x in v]


def transcribed_pairs(diagonals: list[list[float]]) -> tuple[float, float]:
    """H_N and H_D over the whole K × K matrices, k = j included."""
    H_N = H_D = 0.0
    for a in diagonals:
        for b in diagonals:
            norm_a, norm_b = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(x * x for x in b))
            H_N += (norm_a - norm_b) ** 2
            H_D += sum(x * y for x, y in zip(a, b, strict=True)) / (norm_a * norm_b)
    return H_N / len(diagonals) ** 2, H_D / len(diagonals) ** 2


# -- The comparison. ---------------------------------------------------------------------------------------


def test_the_trace_of_resampled_products(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    operator = Resampled(_over(model), _loader(images, labels))
    found = published_trace(operator, generator=torch.Generator().manual_seed(1))
    passes, generator, values = transcribed_passes(images, labels), torch.Generator().manual_seed(1), []
    parameters = list(model.parameters())
    for _ in range(found.iterations):
        coins = torch.randint(2, (sum(p.numel() for p in parameters),), generator=generator)
        flat = coins.double() * 2 - 1
        z = [
            x.view(p.shape)
            for x, p in zip(flat.split([p.numel() for p in parameters]), parameters, strict=True)
        ]
        hz = transcribed_product(model, next(passes), z)
        values.append([float((x * y).sum()) for x, y in zip(z, hz, strict=True)])
    mean, blocks, iterations = transcribed_trace(values)
    assert found.iterations == iterations
    assert found.value == pytest.approx(mean, rel=1e-9)
    assert found.tensor.tolist() == pytest.approx(blocks, rel=1e-9)
    assert float(found.tensor.sum()) == pytest.approx(found.value, rel=1e-12)


def test_the_eigenvalues_of_resampled_products(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    operator = Resampled(_over(model), _loader(images, labels))
    found = published_eigenpairs(operator, k=2, generator=torch.Generator().manual_seed(1))
    values, vectors, counts = transcribed_power_iteration(model, transcribed_passes(images, labels), 2)
    assert found.iterations == tuple(counts)
    assert found.values.tolist() == pytest.approx(values, rel=1e-9)
    for column, vector in zip(found.vectors.T, vectors, strict=True):
        torch.testing.assert_close(column, torch.cat([x.flatten() for x in vector]))


def _steps(values: list[float]) -> tuple[PublishedTrace, int]:
    """The trace of an operator whose i-th zᵀHz is the i-th of ``values``, in two blocks, and its products."""
    left = iter(values)

    def apply(z: Tensor) -> Tensor:
        return next(left) / 4 * z

    operator = LambdaOperator(apply, 4, blocks=(("a", 1), ("b", 3)))
    found = published_trace(operator, generator=torch.Generator().manual_seed(1))
    return found, len(values) - len(list(left))


@pytest.mark.parametrize(
    ("values", "iterations"),
    [
        ([10.0, 2.0, 6.005, *[50.0] * 97], 3),  # by chance: the third draw is near the mean of two wild ones
        ([float(i**2) for i in range(1, 101)], 100),  # never
        ([-8.0, -20.0, *[-14.0] * 98], 3),  # the unguarded ratio would be negative, and stop at the second
        ([1e-10, *[5.0] * 99], 1),  # the mean before the first is 0, guarded by 1e-6 alone
    ],
)
def test_the_stopping_rule_of_the_trace(values: list[float], iterations: int) -> None:
    found, products = _steps(values)
    mean, blocks, expected = transcribed_trace([[value / 4, 3 * value / 4] for value in values])
    assert found.iterations == products == expected == iterations
    assert found.value == pytest.approx(mean, rel=1e-12)
    assert found.tensor.tolist() == pytest.approx(blocks, rel=1e-12)


def test_power_iteration_returns_the_quotient_before_the_last() -> None:
    matrix = symmetric(torch.tensor([-9.0, 4.0, 1.0, 0.5]))
    seen: list[float] = []

    def apply(v: Tensor) -> Tensor:
        seen.append(float(v @ matrix @ v))
        return matrix @ v

    found = published_eigenpairs(LambdaOperator(apply, 4), generator=torch.Generator().manual_seed(1))
    assert float(found.values[0]) == pytest.approx(seen[-2], rel=1e-12)
    assert float(found.values[0]) != pytest.approx(seen[-1], rel=1e-6)
    assert float(found.values[0]) == pytest.approx(-9, rel=1e-2)  # of largest magnitude, with its sign
    assert abs(seen[-1] - seen[-2]) < 1e-3 * 9 <= abs(seen[-2] - seen[-3])


def test_power_iteration_that_does_not_settle_ends_at_the_hundredth() -> None:
    found = published_eigenpairs(
        matrix_operator(symmetric(torch.tensor([1.0, -1.0, 1.0, -1.0]))),
        generator=torch.Generator().manual_seed(1),
        tol=0.0,
    )
    assert found.iterations == (100,)


def test_pairs_are_all_of_them() -> None:
    diagonals = [[1.0, 2.0, -1.0], [0.5, 1.0, 3.0], [2.0, -0.5, 0.1]]
    traces = [PublishedTrace(sum(d), torch.tensor(d, dtype=torch.float64), 7) for d in diagonals]
    found = published_comparison(traces)
    H_N, H_D = transcribed_pairs(diagonals)
    assert found.H_N["tensor"].value == pytest.approx(H_N, rel=1e-12)
    assert found.H_D["tensor"].value == pytest.approx(H_D, rel=1e-12)
    distinct = published_comparison(traces, "distinct")
    assert pytest.approx(2 / 3 * distinct.H_N["tensor"].value) == H_N
    assert pytest.approx((2 * distinct.H_D["tensor"].value + 1) / 3) == H_D
    assert math.isnan(found.H_N["tensor"].stderr)
    assert (found.probes, found.matvecs, found.converged) == ((7, 7, 7), 21, None)


def test_a_loader_starts_again_at_every_call(images: Tensor, labels: Tensor) -> None:
    loader = _loader(images, labels)
    first, second = loader(), loader()
    assert first.sizes == (BATCH,) * 10  # of 11 whole batches and a partial one
    assert _loader(images, labels, batches=None)().sizes == (BATCH,) * 11
    rows = [torch.cat([y for _, y in batches]) for batches in (first, second)]
    assert not torch.equal(*rows)
    again = _loader(images, labels)()
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    with pytest.raises(UserError, match="lower --batch-size"):
        _loader(images[:3], labels[:3])


def test_products_see_other_samples_each_time(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    operator = Resampled(_over(model), _loader(images, labels))
    v = torch.ones(operator.shape[0], dtype=torch.float64)
    first, second = (product.vector for product in operator.products(torch.stack([v, v])))
    assert not torch.allclose(first, second, rtol=1e-3)
    loader = _loader(images, labels)
    for product in (first, second):
        batches: Batches = loader()
        fixed = Hessian(model, nn.functional.cross_entropy, batches)
        torch.testing.assert_close(product, fixed.matvec(v))


def test_a_network_is_looked_at_once_and_no_drawn_operator_stays(
    model: nn.Module, images: Tensor, labels: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, made = list[bool](), list[weakref.ref[Hessian]]()

    def looked(*args: Any, **named: Any) -> str:
        looks.append(True)
        return compared(*args, **named)

    monkeypatch.setattr(empirical_risk, "compared", looked)

    def over(batches: Batches) -> Hessian:
        operator = Hessian(model, nn.functional.cross_entropy, batches)
        made.append(weakref.ref(operator))
        return operator

    operator = Resampled(over, _loader(images, labels))
    for _ in range(4):
        operator.matvec(torch.ones(operator.shape[0], dtype=torch.float64))
    assert (len(looks), len(made)) == (1, 4)
    assert sum(one() is not None for one in made) == 1
