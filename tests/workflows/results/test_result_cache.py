"""What is kept is named by content: the same operator is found again, another never mistaken for it."""

import copy
import errno
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, GaussNewton, Hessian
from fedscope.landscape.operators.product_cache import JournalSpace, identity
from fedscope.records.hessian_record import HessianRecord
from fedscope.workflows.results import result_cache as keeping
from fedscope.workflows.results.result_cache import ResultCache, key
from tests.figures.records import curvature
from tests.landscape.cases import convnet, mlp

RECORD = HessianRecord.read(curvature())


def found(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the JSON of a kept result."""
    record = ResultCache(folder).result(key)
    return record.to_json() if record else None


def test_an_operator_is_known_by_its_content() -> None:
    case = convnet()
    names = {
        "same": identity(case.operator),
        "again": identity(Hessian(copy.deepcopy(case.model), case.loss_fn, case.batches)),
    }
    assert names["same"] == names["again"]
    moved = copy.deepcopy(case.model)
    with torch.no_grad():
        next(moved.parameters()).flatten()[0] += 1e-12
    activation = copy.deepcopy(case.model)
    activation[2] = nn.Tanh()  # type: ignore[operator]
    others = [
        GaussNewton(case.model, case.loss_fn, case.batches),
        Hessian(moved, case.loss_fn, case.batches),
        Hessian(activation, case.loss_fn, case.batches),
        Hessian(case.model, nn.CrossEntropyLoss(label_smoothing=0.1), case.batches),
        Hessian(case.model, case.loss_fn, case.batches, bn="recalibrate"),
        Hessian(case.model, case.loss_fn, case.batches, parameters=["0.*"]),
        Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets, 9)),
        Hessian(case.model, case.loss_fn, Batches(case.inputs.flip(0), case.targets.flip(0), 8)),
    ]
    found = [names["same"], *map(identity, others)]
    assert len(set(found)) == len(found)


@pytest.mark.filterwarnings("ignore:the gradient is not that of the loss")
def test_a_loss_that_differs_in_its_derivatives_alone_is_another() -> None:
    case = mlp()

    def whole(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) + output.square().mean()

    def detached(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) + output.detach().square().mean()

    found = {identity(Hessian(case.model, loss, case.batches)) for loss in (whole, detached)}
    assert len(found) == 2


def test_a_key_says_what_was_asked_too() -> None:
    operator = mlp().operator
    assert key(operator, {"top_k": 1, "tol": 0.1}) == key(operator, {"tol": 0.1, "top_k": 1})
    assert key(operator, {"top_k": 1}) != key(operator, {"top_k": 2})


def test_results_are_found_until_they_are_damaged(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "a")
    assert cache.result("k") is None
    operator = cache.operator(mlp().operator)
    operator.matvec(torch.ones(51, dtype=torch.float64))
    assert list((tmp_path / "a" / "products").glob("*/*.npz"))
    cache.finish("k", RECORD)
    assert found(tmp_path / "a", "k") == RECORD.to_json()
    assert not list((tmp_path / "a" / "products").glob("*"))  # the result is safe
    (tmp_path / "a" / "k.json").write_text('{"value": 1.')
    assert ResultCache(tmp_path / "a").result("k") is None


def test_operators_are_let_go_of_when_their_work_is_done(tmp_path: Path) -> None:
    cache, case = ResultCache(tmp_path), mlp()
    base = Hessian(case.model, case.loss_fn, case.batches)
    alive = weakref.ref(base)  # with it the graphs that it keeps between products
    cache.operator(base).matvec(torch.ones(51, dtype=torch.float64))
    del base
    gc.collect()
    assert alive() is None


def test_each_result_of_a_command_has_the_whole_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "JournalSpace", lambda: JournalSpace(2_000))  # bytes: a few products
    cache, operator = ResultCache(tmp_path), mlp().operator
    for name in ("first", "second"):
        for seed in range(9):
            own = cache.operator(operator)
            own.matvec(torch.full((51,), seed + 1.0, dtype=torch.float64))
        assert len(list((tmp_path / "products").rglob("*.npz"))) in range(1, 9), name
        cache.finish(name, RECORD)
        assert not list((tmp_path / "products").rglob("*.npz"))


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    cache, operator = ResultCache(None), mlp().operator
    assert cache.operator(operator) is operator
    cache.finish("k", RECORD)
    assert cache.result("k") is None
    (tmp_path / "file").write_text("no folder")
    blocked = ResultCache(tmp_path / "file")
    assert blocked.operator(operator) is operator
    blocked.finish("k", RECORD)
    assert blocked.result("k") is None


@pytest.mark.parametrize("place", range(0, 160, 7))
def test_a_changed_digit_is_a_result_that_was_not_kept(tmp_path: Path, place: int) -> None:
    ResultCache(tmp_path).finish("a", RECORD)
    path = tmp_path / "a.json"
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)
    assert found(tmp_path, "a") in (None, RECORD.to_json())
    path.write_bytes(content[: place % len(content)])
    assert ResultCache(tmp_path).result("a") is None


def test_a_result_of_another_shape_is_none(tmp_path: Path) -> None:
    for text in ("[]", "1", "{}", '{"record": []}', '{"record": {}, "sha256": 1}', "[" * 100_000, "\udcff"):
        (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert ResultCache(tmp_path).result("a") is None


def test_a_full_disk_does_not_take_the_result_from_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping, "write_text", full)
    cache = ResultCache(tmp_path)
    cache.operator(mlp().operator).matvec(torch.ones(51, dtype=torch.float64))
    cache.finish("k", RECORD)
    assert cache.result("k") is None
    assert list(tmp_path.glob("products/*/*.npz"))


def test_a_linked_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".analysis").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        ResultCache(tmp_path / ".analysis")
