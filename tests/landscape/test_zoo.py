"""The zoo's products and losses: PyTorch's own to 1e-5, or a refusal that says what to do."""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, surface

from .zoo import NETS, Animal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from .zoo_transformers import TRANSFORMERS

ZOO: Mapping[str, Animal] = {**NETS, **TRANSFORMERS}
MEASURED = sorted(name for name, animal in ZOO.items() if animal.way != "refused")
REFUSED = sorted(set(ZOO) - set(MEASURED))
DOCS = Path(__file__).parents[2] / "docs" / "your_model.md"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():  # of libraries, about networks as they are written
        warnings.simplefilter("ignore")
        yield


def _pairs(animal: Animal) -> list[tuple[Any, Any]]:
    return [item if isinstance(item, tuple) else (item, item) for item in animal.batches()]


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _samples(tree: Any) -> int:
    if isinstance(tree, Tensor):
        return len(tree)
    return _samples(next(iter(tree.values())) if isinstance(tree, Mapping) else tree[0])


def _gradient(animal: Animal, inputs: Any, targets: Any, moved: Tensor) -> tuple[Any, list[Any], Tensor]:
    """Return weights, gradient with its graph, and loss at ``moved`` from the network as it is made."""
    model = animal.model()  # anew: some write to their buffers
    model = getattr(model, "_orig_mod", model)  # a compiled graph has no second derivative
    weights = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([p.detach().reshape(-1) for p in weights])
    nn.utils.vector_to_parameters(flat + moved.to(flat), weights)
    loss = animal.loss(_called(model, inputs), targets)
    gradient = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    return weights, list(gradient), loss.detach().double()


def _joined(pieces: Any) -> Tensor:
    return torch.cat([piece.detach().reshape(-1).double() for piece in pieces])


def by_pytorch(animal: Animal, v: Tensor) -> Tensor:
    """Hv by differentiating twice, or from two gradients where PyTorch's second derivative is wrong."""
    total, zero = torch.zeros(len(v), dtype=torch.float64), torch.zeros(len(v), dtype=torch.float64)
    pairs = _pairs(animal)
    for inputs, targets in pairs:
        if animal.by_differences:
            ends = [_joined(_gradient(animal, inputs, targets, h * v)[1]) for h in (1e-6, -1e-6)]
            product = (ends[0] - ends[1]) / 2e-6
        else:
            weights, gradient, _ = _gradient(animal, inputs, targets, zero)
            flat = torch.cat([piece.reshape(-1) for piece in gradient])
            second = torch.autograd.grad(flat @ v.to(flat), weights, materialize_grads=True)
            product = _joined(second)
        total += product * _samples(inputs)
    return total / sum(_samples(inputs) for inputs, _ in pairs)


@pytest.fixture
def _differentiable() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH), torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.usefixtures("_differentiable")
@pytest.mark.parametrize("name", MEASURED)
def test_a_product_is_what_pytorch_gives_for_the_users_own_network(name: str) -> None:
    animal = ZOO[name]
    model = animal.model()
    before = copy.deepcopy(model.state_dict())
    looks = _looks(model)
    data = animal.batches()
    samples = Batches.from_iterable(copy.deepcopy(data)).sha256
    operator = Hessian(model, animal.loss, data)
    v = torch.randn(operator.shape[0], generator=torch.Generator().manual_seed(2)).double()
    expected, found = by_pytorch(animal, v), operator.matvec(v).double()
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())
    assert (operator.form.fast, operator.form.reason is not None) == FORMS[animal.way]
    assert operator.departs == ""

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert _looks(model) == looks
    assert Batches.from_iterable(data).sha256 == samples
    assert all(p.grad is None for p in model.parameters())


def _looks(model: nn.Module) -> list[Any]:
    """Return mode, hooks and attributes of all modules."""
    return [
        (m.training, len(m._forward_hooks), len(m._forward_pre_hooks), set(vars(m))) for m in model.modules()
    ]


FORMS = {"fast": (True, False), "plain": (False, False), "falls back": (False, True)}


@pytest.mark.usefixtures("_differentiable")
@pytest.mark.parametrize("name", MEASURED)
def test_a_point_of_the_landscape_has_the_networks_own_loss(name: str) -> None:
    animal = ZOO[name]
    model = animal.model()
    n = sum(p.numel() for p in model.parameters() if p.requires_grad)
    d = torch.randn(n, generator=torch.Generator().manual_seed(3)) / n**0.5
    found = surface(model, animal.loss, Batches.of(animal.batches()), directions=(d,), values=([0.0, 0.5],))
    samples = sum(_samples(inputs) for inputs, _ in _pairs(animal))
    for value, at in zip(found.loss.tolist(), (0.0, 0.5), strict=True):
        losses = [
            _samples(x) / samples * float(_gradient(animal, x, y, at * d)[2]) for x, y in _pairs(animal)
        ]
        assert value == pytest.approx(sum(losses), rel=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_second_derivative_is_refused_by_name_with_the_mend(name: str) -> None:
    animal = ZOO[name]
    with pytest.raises(UserError, match=re.escape(animal.says)):
        operator = Hessian(animal.model(), animal.loss, animal.batches())
        operator.matvec(torch.ones(operator.shape[0]))


def test_the_guide_counts_the_zoo_as_it_is() -> None:
    rows = re.findall(r"^\| (fast|plain|falls back|refused)\b[^|]*\| *(\d+) \|", DOCS.read_text(), re.M)
    assert {way: int(number) for way, number in rows} == Counter(animal.way for animal in ZOO.values())
