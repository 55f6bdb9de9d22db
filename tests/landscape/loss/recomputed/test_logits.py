"""Logits by chunks against all at once: losses, gradients, Hessians, and what is held on to."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian, MonteCarloFisher
from fedscope.landscape.loss.checks import largest
from fedscope.landscape.loss.recomputed import logits
from fedscope.landscape.loss.recomputed.logits import ChunkedLogits

WORDS = 60
TOKENS = torch.randint(WORDS, (4, 7), generator=torch.Generator().manual_seed(0))
Loss = Callable[[Tensor, Tensor], Tensor]
Relative = type[GaussNewton] | type[EmpiricalFisher] | type[MonteCarloFisher]


class Language(nn.Module):
    """The least of a language model, its output layer tied to its embedding or not."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(WORDS, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, WORDS, bias=not tied)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.inner(self.words(tokens))))
        return found


def mean_of_sequences(scores: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(scores.transpose(1, 2), tokens, reduction="none").mean(1).mean()


def weighted_sequences(scores: Tensor, tokens: Tensor) -> Tensor:
    """A weighted mean over the sequences, by the number of their tokens that are low."""
    weights = (tokens < WORDS // 2).sum(1).to(scores.dtype)
    each = F.cross_entropy(scores.transpose(1, 2), tokens, reduction="none").mean(1)
    return (weights * each).sum() / weights.sum()


CHUNKED: dict[str, Loss] = {
    "transposed": lambda z, t: F.cross_entropy(z[:, :-1].transpose(1, 2), t[:, 1:]),
    "shifted": lambda z, t: F.cross_entropy(
        z[..., :-1, :].contiguous().view(-1, WORDS), t[..., 1:].contiguous().view(-1)
    ),
    "flattened": lambda z, t: F.cross_entropy(z.flatten(0, 1), t.flatten(), reduction="sum") / t.numel(),
    "permuted": lambda z, t: F.cross_entropy(z.permute(0, 2, 1), t, ignore_index=int(t[0, 0])),
    "as Hugging Face has it": lambda z, t: F.cross_entropy(
        z.to(z.dtype).view(-1, z.size(-1)),
        F.pad(t, (0, 1), value=-100)[..., 1:].reshape(-1),
        ignore_index=-100,
    ),
    "by sequence": mean_of_sequences,
    "a module": lambda z, t: nn.CrossEntropyLoss()(z.transpose(1, 2), t),
}
WHOLE: dict[str, tuple[Loss, str]] = {
    "smoothed": (
        lambda z, t: F.cross_entropy(z.transpose(1, 2), t, label_smoothing=0.1), "cross_entropy",
    ),
    "written out": (lambda z, t: -z.log_softmax(-1).gather(-1, t[..., None]).mean(), "log_softmax"),
    "of some classes": (lambda z, t: F.cross_entropy(z[..., :50].transpose(1, 2), t % 50), "__getitem__"),
    "with a penalty": (
        lambda z, t: F.cross_entropy(z.transpose(1, 2), t) + 1e-3 * (z**2).mean(), "pow",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits, "CLASSES", 50)
    monkeypatch.setattr(logits, "_CHUNK", 5 * WORDS * 8)  # five positions


def derivatives(model: nn.Module, loss: Loss, chunked: ChunkedLogits | None) -> list[Tensor]:
    """Return loss, gradients and a Hessian's product."""
    if chunked:
        with chunked():
            scores = model(TOKENS)
    else:
        scores = model(TOKENS)
    value = loss(scores, TOKENS)
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(value, parameters, create_graph=True)
    along = [torch.sin(torch.arange(p.numel()).double()).view(p.shape) for p in parameters]
    return [value, *slopes, *torch.autograd.grad(slopes, parameters, along)]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", [*CHUNKED, *WHOLE])
def test_the_numbers_are_the_same(name: str, tied: bool) -> None:
    torch.manual_seed(0)
    model = Language(tied).double()
    loss, whole = WHOLE[name] if name in WHOLE else (CHUNKED[name], "")
    chunked = ChunkedLogits(model)
    own = derivatives(model, loss, chunked)
    assert chunked.found
    assert chunked.whole == whole
    for one, other in zip(own, derivatives(model, loss, None), strict=True):
        torch.testing.assert_close(one, other)
    assert "forward" not in vars(model.head)


def test_their_size_is_known_by_chunks() -> None:
    torch.manual_seed(0)
    model = Language(True).double()
    chunked = ChunkedLogits(model)
    with chunked():
        scores = model(TOKENS)
    assert scores.shape == (4, 7, WORDS)
    assert scores.dtype == torch.float64
    assert largest(scores) == pytest.approx(largest(model(TOKENS)))
    assert chunked.whole == ""


@pytest.mark.parametrize("positions", [1, 5])  # of one, strides do not tell an order
def test_their_dimensions_are_moved_as_those_of_numbers(positions: int) -> None:
    tokens = TOKENS[:, :positions]
    moves: list[Callable[[Tensor], Tensor]] = [
        lambda z: z.transpose(1, 2),
        lambda z: z.transpose(1, 2).transpose(-1, -2),
        lambda z: z.permute(0, 2, 1).movedim(1, 2),
        lambda z: torch.permute(z, (0, 1, 2)),
        lambda z: z.flatten(0, 1).view(4, positions, -1),
    ]
    torch.manual_seed(0)
    model = Language(True).double()
    chunked = ChunkedLogits(model)
    for move in moves:
        with chunked():
            moved = move(model(tokens))
        assert chunked.whole == ""
        assert moved.shape == move(model(tokens)).shape


def test_few_classes_are_left_alone() -> None:
    assert not ChunkedLogits(nn.Sequential(nn.Linear(3, 40))).found


def test_an_operator_takes_chunks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, data = Language(True).double(), Batches(TOKENS.repeat(4, 1), TOKENS.repeat(4, 1), 8)
    v = torch.randn(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    chunked = Hessian(model, mean_of_sequences, data)
    product = chunked.product(v)
    assert "logits by chunks" in str(chunked.plan)
    written = Hessian(model, WHOLE["written out"][0], data)
    torch.testing.assert_close(written @ v, product.vector)
    assert "all logits at once, for log_softmax" in str(written.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    whole = Hessian(model, mean_of_sequences, data)
    torch.testing.assert_close(whole @ v, product.vector)
    assert "logits" not in str(whole.plan)
    positions, bytes_of_logits = 8 * 7, WORDS * 8
    assert whole.plan.size - chunked.plan.size > positions * bytes_of_logits


@pytest.mark.parametrize(
    ("operator", "loss"),
    [
        *((GaussNewton, loss) for loss in CHUNKED.values()),
        *((EmpiricalFisher, loss) for name, loss in CHUNKED.items() if name != "permuted"),  # no mean
        (EmpiricalFisher, weighted_sequences),
        (MonteCarloFisher, CHUNKED["a module"]),
        (MonteCarloFisher, CHUNKED["flattened"]),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_relatives_of_the_hessian_take_chunks(
    tied: bool, operator: Relative, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, data = Language(tied).double(), Batches(TOKENS.repeat(2, 1), TOKENS.repeat(2, 1), 4)
    v = torch.randn(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    chunked = operator(model, loss, data)
    product = chunked @ v
    assert "logits by chunks" in str(chunked.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    whole = operator(model, loss, data)
    torch.testing.assert_close(product, whole @ v, rtol=1e-9, atol=1e-12)
    assert "logits" not in str(whole.plan)
    assert whole.plan.size > chunked.plan.size


@pytest.mark.parametrize("frozen", [("head",), ("head.bias",), ("words",), ("words", "inner")])
@pytest.mark.parametrize("operator", [GaussNewton, EmpiricalFisher, MonteCarloFisher])
def test_relatives_leave_what_is_frozen(
    frozen: tuple[str, ...], operator: Relative, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, data = Language(False).double(), Batches(TOKENS, TOKENS)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    chunked = operator(model, mean_of_sequences, data)
    v = torch.randn(chunked.shape[0], dtype=torch.float64)
    product = chunked @ v
    assert "logits by chunks" in str(chunked.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    torch.testing.assert_close(product, operator(model, mean_of_sequences, data) @ v)


def test_drawn_labels_are_several_and_none_in_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    targets = TOKENS.clone()
    targets[0, 2:], targets[2, 6:] = -100, -100
    model, data, loss = Language(False).double(), Batches(TOKENS, targets, 3), CHUNKED["a module"]
    chunked = MonteCarloFisher(model, loss, data, samples=3, seed=1)
    v = torch.randn(chunked.shape[0], dtype=torch.float64)
    product = chunked @ v
    assert "logits by chunks" in str(chunked.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    whole = MonteCarloFisher(model, loss, data, samples=3, seed=1)
    torch.testing.assert_close(product, whole @ v, rtol=1e-9, atol=1e-12)
    other = MonteCarloFisher(model, loss, data, samples=3, seed=2)
    assert not torch.allclose(product, other @ v)


@pytest.mark.parametrize("operator", [GaussNewton, EmpiricalFisher, MonteCarloFisher])
def test_networks_that_return_classes_first(operator: Relative, monkeypatch: pytest.MonkeyPatch) -> None:
    class Transposed(Language):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens).transpose(1, 2)

    torch.manual_seed(0)
    model, data, loss = Transposed(True).double(), Batches(TOKENS, TOKENS, 2), nn.CrossEntropyLoss()
    chunked = operator(model, loss, data)
    v = torch.randn(chunked.shape[0], dtype=torch.float64)
    product = chunked @ v
    assert "logits by chunks" in str(chunked.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    torch.testing.assert_close(product, operator(model, loss, data) @ v, rtol=1e-9, atol=1e-12)


def test_gauss_newton_of_a_loss_that_is_no_sum_takes_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def squared(scores: Tensor, tokens: Tensor) -> Tensor:
        return F.cross_entropy(scores.transpose(1, 2), tokens, reduction="none").square().mean()

    torch.manual_seed(0)
    model, data = Language(True).double(), Batches(TOKENS, TOKENS)
    v = torch.randn(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    written = GaussNewton(model, squared, data)
    product = written @ v
    assert "all logits at once, for a loss that is no weighted sum over positions" in str(written.plan)
    monkeypatch.setattr(logits, "CLASSES", 1000)
    torch.testing.assert_close(product, GaussNewton(model, squared, data) @ v)


def test_gauss_newton_is_of_what_the_network_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network that returns its loss, which is linear in it, nothing is left."""

    class Own(Language):
        def forward(self, tokens: Tensor) -> Tensor:
            return F.cross_entropy(super().forward(tokens).transpose(1, 2), tokens, reduction="none")

    torch.manual_seed(0)
    model, data = Own(True).double(), Batches(TOKENS, TOKENS)
    operator = GaussNewton(model, lambda losses, _: losses.mean(), data)
    v = torch.randn(operator.shape[0], dtype=torch.float64)
    assert float((operator @ v).abs().max()) == 0


def test_gauss_newton_of_what_is_not_used_is_refused() -> None:
    class Spare(Language):
        def __init__(self) -> None:
            super().__init__(tied=False)
            self.spare = nn.Linear(8, 8)

    model, data = Spare().double(), Batches(TOKENS, TOKENS)
    with pytest.raises(UserError, match="does not depend on the trainable parameters"):
        GaussNewton(model, mean_of_sequences, data, parameters=["spare.*"]).matvec(torch.ones(72).double())
