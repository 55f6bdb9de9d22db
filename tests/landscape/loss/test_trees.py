"""Models of several inputs, dicts as batches, dense and sequential targets, against dense Hessians."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian, frozen_copy
from fedscope.landscape.loss.mean_loss import check_mean
from fedscope.landscape.loss.trees import Tree, count, joined, mapped, split
from fedscope.landscape.published.engines import pyhessian_spectrum

SAMPLES = 7


class Pair(nn.Module):
    """Two inputs, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        output: Tensor = self.out(torch.tanh(self.left(left) * self.right(right)))
        return output


class WithLoss(Pair):
    """A model that is given its labels and returns its loss in a dict, as Hugging Face's do."""

    def forward(self, left: Tensor, right: Tensor, labels: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        logits = super().forward(left, right)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class Language(nn.Module):
    """One causal self-attention layer over an embedding that is also the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        mask = torch.triu(torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool), 1)
        logits: Tensor = self.out(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
        return logits


def next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Tensor]
    batch: Callable[[], Any]  # one item with all samples, as a loader would yield it
    call: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any], Any]]  # its arguments and targets


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    left, right = torch.randn(SAMPLES, 3, dtype=torch.float64), torch.randn(SAMPLES, 2, dtype=torch.float64)
    return left, right, torch.arange(SAMPLES) % 3


def named() -> dict[str, Tensor]:
    return dict(zip(("left", "right", "labels"), tensors(), strict=True))


def by_position() -> tuple[Any, Any]:
    left, right, labels = tensors()
    return (left, right), labels


def by_name() -> tuple[Any, Any]:
    left, right, labels = tensors()
    return {"left": left, "right": right}, {"class": labels}


def images() -> tuple[Any, Any]:
    return torch.randn(SAMPLES, 1, 4, 4, dtype=torch.float64), torch.randint(2, (SAMPLES, 4, 4))


def sentences() -> tuple[Any, Any]:
    tokens = torch.randint(6, (SAMPLES, 5))
    return tokens, tokens


CASES = {
    "positions": Case(Pair, cross_entropy, by_position, lambda b: (b[0], {}, b[1])),
    "names": Case(Pair, lambda o, t: cross_entropy(o, t["class"]), by_name, lambda b: ((), b[0], b[1])),
    "dicts": Case(WithLoss, lambda output, _: output["loss"], named, lambda b: ((), b, b)),
    "segmentation": Case(
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 1)),
        cross_entropy, images, lambda b: ((b[0],), {}, b[1]),
    ),
    "language": Case(Language, next_token, sentences, lambda b: ((b[0],), {}, b[1])),
}  # fmt: skip


def dense(case: Case, model: nn.Module, batch: Any) -> Tensor:
    """The Hessian of the loss over all samples at once, through none of the package."""
    positional, keywords, targets = case.call(batch)
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(flat: Tensor) -> Tensor:
        pieces = flat.split([shape.numel() for shape in shapes.values()])
        state = {n: piece.view(s) for (n, s), piece in zip(shapes.items(), pieces, strict=True)}
        return case.loss(functional_call(model, state, positional, keywords), targets)

    with warnings.catch_warnings(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        matrix: Tensor = hessian(loss)(flat)
    return matrix


def prepared(name: str) -> tuple[Case, nn.Module, Any, Batches]:
    torch.manual_seed(0)
    case = CASES[name]
    model, batch = case.make().double().eval(), case.batch()
    inputs, targets = (batch, batch) if isinstance(batch, dict) else batch
    return case, model, batch, Batches(inputs, targets, batch_size=3)


@pytest.mark.parametrize("name", CASES)
def test_products_are_the_dense_hessians(name: str) -> None:
    case, model, batch, batches = prepared(name)
    assert batches.sizes == (3, 3, 1)
    matrix = dense(case, model, batch)
    v = torch.randn(len(matrix), dtype=torch.float64)
    assert torch.allclose(Hessian(model, case.loss, batches).matvec(v), matrix @ v, atol=1e-10)
    check_mean(model, case.loss, batches)


@pytest.mark.parametrize("kind", [GaussNewton, EmpiricalFisher])
def test_the_other_operators_take_trees_too(kind: type[GaussNewton | EmpiricalFisher]) -> None:
    case, model, batch, batches = prepared("names")
    inputs, targets = batch
    whole = kind(model, case.loss, Batches(inputs, targets))
    v = torch.randn(whole.shape[0], dtype=torch.float64)
    alone = sum(
        kind(model, case.loss, Batches(*pair)).matvec(v)
        for pair in zip(split(inputs, 1), split(targets, 1), strict=True)
    )
    assert torch.allclose(whole.matvec(v), torch.as_tensor(alone) / SAMPLES, atol=1e-12)
    assert torch.allclose(kind(model, case.loss, batches).matvec(v), whole.matvec(v), atol=1e-12)
    case, model, batch, batches = prepared("dicts")
    with pytest.raises(UserError, match=r"dict.*one tensor"):
        kind(model, case.loss, batches).matvec(v)


def test_recalibration_and_pyhessian() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    batches = Batches({"input": torch.randn(8, 3)}, torch.arange(8) % 2, batch_size=4)
    frozen = frozen_copy(model, bn="recalibrate", batches=batches)
    inputs = torch.cat([x["input"] for x, _ in batches])
    assert torch.allclose(frozen[0].running_mean, inputs.mean(0), atol=1e-6)  # type: ignore[index]
    with pytest.raises(UserError, match=r"PyHessian .*one input"):
        pyhessian_spectrum(model, cross_entropy, batches)


def test_a_loader_may_yield_dicts_or_pairs() -> None:
    items = [mapped(lambda t, at=at: t[at : at + 4], named()) for at in (0, 4)]  # type: ignore[misc]
    batches = Batches.from_iterable(iter(items)).to("cpu", torch.float32)
    assert batches.sizes == (4, 3)
    inputs, targets = next(iter(batches))
    assert inputs["left"].dtype == torch.float32
    assert targets["labels"].dtype == torch.int64
    for item in (torch.ones(2), (torch.ones(2), None), {"text": ["a"], "label": torch.ones(1)}, {}):
        with pytest.raises(UserError, match="batch"):
            Batches.from_iterable([item])


def test_cutting_and_joining_are_inverse() -> None:
    tree: Tree = {"a": torch.arange(14).view(7, 2), "b": [torch.arange(7), (torch.ones(7),)]}
    parts = split(tree, 3)
    assert [count(part) for part in parts] == [3, 3, 1]
    again = joined(parts)
    assert torch.equal(again["a"], tree["a"])
    assert torch.equal(again["b"][1][0], tree["b"][1][0])
    with pytest.raises(UserError, match="different entries"):
        joined([{"a": torch.ones(1)}, {"b": torch.ones(1)}])
    with pytest.raises(UserError, match="pad"):
        joined([torch.ones(1, 2), torch.ones(1, 3)])
    with pytest.raises(UserError, match="same first dimension"):
        count({"a": torch.ones(2), "b": torch.ones(3)})


def padded(logits: Tensor, tokens: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=0)  # a mean over all tokens


def per_sentence(logits: Tensor, tokens: Tensor) -> Tensor:
    losses = cross_entropy(logits.transpose(1, 2), tokens, ignore_index=0, reduction="none")
    return (losses.sum(1) / (tokens != 0).sum(1)).mean()


def test_a_loss_that_is_no_mean_over_samples_is_refused() -> None:
    torch.manual_seed(1)
    model, tokens = Language().double().eval(), torch.randint(1, 6, (9, 5))
    for row in range(9):
        tokens[row, 1 + row // 2 :] = 0
    batches = Batches(tokens, tokens, batch_size=6)
    check_mean(model, per_sentence, batches)
    with pytest.raises(UserError, match="--batch-size 9"):
        check_mean(model, padded, batches)
    whole = Batches(tokens, tokens)
    check_mean(model, padded, whole)  # one batch is whatever it is
    check_mean(model, lambda o, t: padded(o, tokens), whole)  # so is a loss for these samples only
    check_mean(model, lambda o, _t: 0 * o.sum(), batches)  # 0 is the mean of zeros
    for some in (batches, whole):
        with pytest.raises(UserError, match="sum"):
            check_mean(model, lambda o, t: cross_entropy(o.transpose(1, 2), t, reduction="sum"), some)
    with pytest.raises(UserError, match=r"\(6, 5\)"):
        check_mean(model, lambda o, t: cross_entropy(o.transpose(1, 2), t, reduction="none"), batches)
    with pytest.raises(UserError, match="float"):
        check_mean(model, lambda _o, _t: 1.0, batches)  # type: ignore[arg-type, return-value]
