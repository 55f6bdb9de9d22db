"""A surface's numbers against closed forms and a plain loop over networks."""

import copy
import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape import Batches, Directions, Surface, surface
from fedscope.landscape.loss.state_space import StateSpace
from tests.landscape.nets import NETS, net_case


def _quadratic(n: int = 4) -> tuple[nn.Linear, Batches, Tensor, Tensor]:
    """A model with loss ½(w − w*)ᵀA(w − w*), its samples, and A and w − w*."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(7, n, generator=generator, dtype=torch.float64)
    target = torch.randn(n, generator=generator, dtype=torch.float64)
    model = nn.Linear(n, 1, bias=False).double()
    batches = Batches(inputs, (inputs @ target)[:, None], batch_size=3)
    return model, batches, 2 * inputs.T @ inputs / 7, model.weight.detach()[0] - target


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.floats(-3, 3), min_size=1, max_size=5),
    columns=st.lists(st.floats(-3, 3), min_size=1, max_size=5),
    length=st.floats(0, 2),
)
def test_a_quadratics_surface_is_its_polynomial(
    rows: list[float], columns: list[float], length: float
) -> None:
    model, batches, matrix, off = _quadratic()
    d0, d1 = torch.eye(4, dtype=torch.float64)[0], torch.full((4,), length, dtype=torch.float64)
    found = surface(model, mse_loss, batches, directions=(d0, d1), values=(rows, columns))
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            w = off + a * d0 + b * d1
            assert float(found.loss[i, j]) == pytest.approx(float(w @ matrix @ w) / 2, rel=1e-12, abs=1e-12)
    assert found.loss.shape == (len(rows), len(columns))


def test_the_surfaces_curvature_at_its_centre_is_the_quadratics() -> None:
    model, batches, matrix, _ = _quadratic()
    values, vectors = torch.linalg.eigh(matrix)
    found = surface(model, mse_loss, batches, directions=(vectors[:, -1],), span=0.5, grid=3)
    assert float(found.loss @ torch.tensor([1.0, -2.0, 1.0]).double()) / 0.25 == pytest.approx(
        float(values[-1]), rel=1e-12
    )


def test_the_errors_are_those_of_the_samples_mean() -> None:
    model, batches, _, _ = _quadratic()
    inputs, targets = (torch.cat([pair[i] for pair in batches]) for i in (0, 1))
    squares = (model(inputs) - targets).detach().square()[:, 0]

    def size(output: Tensor, _: Tensor) -> Tensor:
        return output.abs()[:, 0]

    def mean_size(output: Tensor, _: Tensor) -> Tensor:
        return output.abs().mean()

    found = surface(model, mse_loss, batches, directions=(torch.zeros(4),), grid=1, metrics=(size, mean_size))
    assert found.stderr is not None
    assert float(found.stderr) == pytest.approx(float(squares.std()) / math.sqrt(7), rel=1e-12)
    sizes = model(inputs).detach().abs()[:, 0]
    for name in ("size", "mean_size"):
        assert float(found.metrics[name]) == pytest.approx(float(sizes.mean()), rel=1e-12)
    assert float(found.metrics_stderr["size"]) == pytest.approx(float(sizes.std()) / math.sqrt(7), rel=1e-12)
    weights, means = torch.tensor([3.0, 3, 1]).double(), torch.stack([s.mean() for s in sizes.split(3)])
    spread = (weights * (means - sizes.mean()) ** 2).sum() / (2 * 7)
    assert float(found.metrics_stderr["mean_size"]) == pytest.approx(float(spread.sqrt()), rel=1e-12)


def test_of_a_finite_population_less_is_left_to_chance() -> None:
    model, batches, _, _ = _quadratic()
    inputs, targets = (torch.cat([pair[i] for pair in batches]) for i in (0, 1))

    def mean_size(output: Tensor, _: Tensor) -> Tensor:
        return output.abs().mean()

    def at_center(population: int | None) -> Surface:
        drawn = Batches(inputs, targets, 3, population=population)
        return surface(model, mse_loss, drawn, directions=(torch.zeros(4),), grid=1, metrics=(mean_size,))

    infinite, finite = at_center(None), at_center(28)
    assert infinite.stderr is not None
    assert finite.stderr is not None
    assert float(finite.stderr) == pytest.approx(0.75**0.5 * float(infinite.stderr))
    errors = [float(one.metrics_stderr["mean_size"]) for one in (finite, infinite)]
    assert errors[0] == pytest.approx(0.75**0.5 * errors[1])


def test_a_loss_that_cannot_be_taken_by_sample_has_the_batches_errors() -> None:
    model, batches, _, _ = _quadratic()

    def picky(output: Tensor, targets: Tensor) -> Tensor:
        return mse_loss(output, targets) if float(output.detach().sum()) < math.inf else output.sum()

    found = surface(model, picky, batches, directions=(torch.zeros(4),), grid=1)
    means = torch.stack([mse_loss(model(x), y).detach() for x, y in batches])
    weights = torch.tensor([3.0, 3, 1]).double()
    spread = (weights * (means - (weights * means).sum() / 7) ** 2).sum() / 14
    assert found.stderr is not None
    assert float(found.stderr) == pytest.approx(float(spread.sqrt()), rel=1e-6)


class Oracle:
    """A plain loop: a copy of the network with moved weights, one batch after another."""

    def __init__(self, model: nn.Module, batches: Batches) -> None:
        self.model, self.batches = copy.deepcopy(model).eval(), batches
        self.trained = [p for p in self.model.parameters() if p.requires_grad]

    @torch.no_grad()
    def __call__(self, weights: Tensor) -> tuple[float, float]:
        """Return loss and accuracy."""
        at, loss, right = 0, 0.0, 0
        for p in self.trained:
            p.copy_(weights[at : at + p.numel()].view(p.shape))
            at += p.numel()
        for inputs, targets in self.batches:
            output = self.model(inputs)
            loss += len(targets) * float(cross_entropy(output, targets))
            right += int((output.argmax(1) == targets).sum())
        return loss / self.batches.samples, right / self.batches.samples

    @torch.no_grad()
    def recalibrate(self) -> None:
        """Give every BatchNorm the mean over samples of the batches' own statistics, its input's so far."""
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None  # PyTorch's cumulative average
            norm.train()
        for inputs, _ in self.batches:
            self.model(inputs)
        for norm in self.norms:
            norm.eval()

    @property
    def norms(self) -> list[nn.modules.batchnorm._BatchNorm]:
        return [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def _centre(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


def _directions(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    d0, d1 = 0.3 * torch.randn(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return d0, d1


GRID = [-1.0, 0.25, 1.0]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_network_as_a_plain_loop_has_it(name: str, dtype: torch.dtype) -> None:
    case = net_case(name)
    model, batches = case.model.to(dtype), Batches(case.inputs.to(dtype), case.targets, case.batch_size)
    oracle, centre = Oracle(model, batches), _centre(model)
    d0, d1 = _directions(len(centre))
    found = surface(
        model, cross_entropy, batches, directions=(d0, d1), values=(GRID, GRID[:2]), metrics=["accuracy"]
    )
    for i, a in enumerate(GRID):
        for j, b in enumerate(GRID[:2]):
            loss, right = oracle((centre.double() + a * d0 + b * d1).to(dtype))
            tol = 1e-12 if dtype == torch.float64 else 1e-5
            assert float(found.loss[i, j]) == pytest.approx(loss, rel=tol)
            assert float(found.metrics["accuracy"][i, j]) == pytest.approx(right, rel=1e-12)
    assert found.statistics == "kept"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("origin", [False, True])
def test_recalibration_is_at_the_model_or_at_every_point(origin: bool, compiled: bool) -> None:
    case = net_case("strided", samples=15)  # equal batches: PyTorch's own average does not weight them
    centre = _centre(case.model)
    d0, d1 = _directions(len(centre))
    start = centre + d1 if origin else None
    model = cast(nn.Module, torch.compile(case.model, backend="eager")) if compiled else case.model
    found = surface(
        model, cross_entropy, case.batches, directions=Directions("x", (d0,), ("d0",), origin=start),
        values=[GRID], bn="recalibrate",
    )  # fmt: skip
    oracle = Oracle(case.model, case.batches)
    oracle.recalibrate()
    for i, a in enumerate(GRID):
        weights = (centre if start is None else start) + a * d0
        if origin:
            oracle(weights)
            oracle.recalibrate()
        assert float(found.loss[i]) == pytest.approx(oracle(weights)[0], rel=1e-12)
    assert found.statistics == f"recalibrated at {'every point' if origin else 'the origin'}"


def test_the_batchs_own_statistics() -> None:
    case = net_case("strided", batch_size=13)
    centre, (d0, _) = _centre(case.model), _directions(len(_centre(case.model)))
    found = surface(case.model, cross_entropy, case.batches, directions=(d0,), values=[GRID], bn="batch")
    oracle = Oracle(case.model, case.batches)
    for norm in oracle.norms:
        norm.train()
    for i, a in enumerate(GRID):
        assert float(found.loss[i]) == pytest.approx(oracle(centre + a * d0)[0], rel=1e-12)
    assert found.statistics == "of the batch"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_line_between_two_networks_has_their_losses_at_its_ends(dtype: torch.dtype) -> None:
    first, second = (net_case("strided").model.to(dtype) for _ in range(2))
    case = net_case("strided")
    batches = Batches(case.inputs.to(dtype), case.targets, 5)
    with torch.no_grad():
        for p in second.parameters():
            p.add_(0.1)
    second.train()(3 * case.inputs.to(dtype) - 1)
    second.eval()
    space = StateSpace.of(first)
    ends = [space.flat(model.state_dict()) for model in (first, second)]
    wanted = [Oracle(model, batches)(_centre(model))[0] for model in (first, second)]
    line = Directions("line", (ends[1] - ends[0],), ("t",), origin=ends[0])
    found = surface(first, cross_entropy, batches, directions=line, values=[[0.0, 0.5, 1.0]])
    tol = 1e-12 if dtype == torch.float64 else 1e-5
    assert [float(found.loss[0]), float(found.loss[2])] == pytest.approx(wanted, rel=tol)
    assert found.statistics == "moved"
    # An origin with statistics, and a direction without: those of the origin stay.
    rest = Directions("x", (torch.zeros(space.n),), ("t",), origin=ends[1])
    kept = surface(first, cross_entropy, batches, directions=rest, grid=1)
    assert float(kept.loss) == pytest.approx(wanted[1], rel=tol)


def test_degenerate_grids_and_directions_are_defined() -> None:
    model, batches, _, _ = _quadratic()
    inputs, targets = (torch.cat([pair[i] for pair in batches]) for i in (0, 1))
    centre = mse_loss(model(inputs), targets).item()
    zero, d = torch.zeros(4), torch.ones(4)
    one = surface(model, mse_loss, batches, directions=(d, d), grid=1)
    assert one.loss.tolist() == [[pytest.approx(centre, rel=1e-12)]]
    flat = surface(model, mse_loss, batches, directions=(zero, zero), grid=(2, 3))
    assert flat.loss.shape == (2, 3)
    assert len(set(flat.loss.flatten().tolist())) == 1
    unequal = surface(model, mse_loss, batches, directions=(zero, d), grid=(1, 4))
    assert unequal.loss.shape == (1, 4)
    assert len(set(unequal.loss.flatten().tolist())) == 4


def test_a_network_that_is_nan_at_the_centre_has_a_surface() -> None:
    model, batches, _, _ = _quadratic()
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    found = surface(model, mse_loss, batches, directions=(torch.ones(4),), grid=3, metrics={"a": mse_loss})
    assert math.isnan(found.center_loss)
    assert found.non_finite == 3
    assert found.metrics["a"].isnan().all()
    assert found.stderr is None


class Noisy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x))


def test_a_network_without_a_loss_of_its_own_has_no_surface() -> None:
    batches = Batches(torch.randn(9, 2), torch.randint(3, (9,)))
    with pytest.raises(UserError, match="different outputs"):
        surface(Noisy(2, 3), cross_entropy, batches, directions=(torch.ones(9),))


class Paired(nn.Linear):
    """Takes eleven samples at once and no fewer: each output is the mean of two samples'."""

    def forward(self, x: Tensor) -> Tensor:
        each = super().forward(x.view(11, -1))
        return (each + each.roll(1, 0)) / 2


def test_a_network_that_takes_whole_batches_only_has_a_surface() -> None:
    model, inputs, targets = Paired(2, 3).double(), torch.randn(22, 2).double(), torch.randint(3, (22,))
    batches = Batches(inputs, targets, 11)
    found = surface(model, cross_entropy, batches, directions=(_centre(model),), values=[[0.0, -1.0]])
    wanted = sum(cross_entropy(model(x), y).item() for x, y in batches) / 2
    assert found.loss.tolist() == pytest.approx([wanted, math.log(3)])


def _refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_what_makes_no_sense_is_refused_in_one_line() -> None:
    model, batches, _, _ = _quadratic()
    d = torch.ones(4)

    def call(**options: object) -> Callable[[], object]:
        given: dict[str, object] = {"directions": (d,), **options}
        return lambda: surface(model, mse_loss, batches, **given)  # type: ignore[arg-type]

    for options, words in (
        ({"grid": 0}, "point"),
        ({"grid": (2, 2)}, "point"),
        ({"span": math.inf}, "span"),
        ({"span": -1.0}, "span"),
        ({"span": 0.0}, "span"),
        ({"values": [[]]}, "points"),
        ({"values": [[0.0], [0.0]]}, "points"),
        ({"values": [[0.0, math.nan]]}, "finite"),
        ({"adaptive": 0.0}, "between 0 and 1"),
        ({"precision": "fp8"}, "precision"),
        ({"precision": "bf16"}, "float32"),
        ({"metrics": ["f1"]}, "f1"),
        ({"metrics": ["accuracy"]}, "logits"),
        ({"metrics": [mse_loss, mse_loss]}, "two metrics"),
        ({"metrics": [lambda o, _: o]}, "must return"),
        ({"metrics": {"bad": lambda *_: 1 / 0}}, "bad fails: ZeroDivisionError"),
        ({"directions": (d, d, d)}, "one or two"),
        ({"directions": ()}, "one or two"),
        ({"directions": (d * math.inf,)}, "finite"),
        ({"directions": (torch.ones(3),)}, r"\(3,\); .* \(4,\)$"),
        ({"directions": Directions("x", (d,), ("x",), origin=torch.ones(3))}, "origin"),
    ):
        _refused(call(**options), words)
    case = net_case("strided")
    n, size = len(_centre(case.model)), StateSpace.of(case.model).size
    assert n < size
    _refused(
        lambda: surface(case.model, cross_entropy, Batches(case.inputs, case.targets), directions=(d,)),
        rf"\(4,\); .* \({n},\), or \({size},\)",
    )


@pytest.mark.parametrize("bn", ["eval", "recalibrate"])
def test_bfloat16_states_its_error(bn: BatchNormMode) -> None:
    case = net_case("pre-activation")
    model, batches = case.model.float(), Batches(case.inputs.float(), case.targets, 5)
    directions = _directions(len(_centre(model)))
    exact, low = (
        surface(model, cross_entropy, batches, directions=directions, grid=3, bn=bn, precision=precision)
        for precision in ("fp32", "bf16")
    )
    error = float(((low.loss - exact.loss) / exact.loss).abs().max())
    assert low.precision_error == pytest.approx(error, rel=1e-6)
    assert 1e-6 < error < 0.1
    assert (exact.precision, exact.precision_error, low.precision) == ("fp32", None, "bf16")
