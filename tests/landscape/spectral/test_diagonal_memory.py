"""How many n-vectors an estimate of the diagonal or of the trace has at once."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedscope.landscape import LambdaOperator, diagonal, trace
from fedscope.landscape.operators.probes import BLOCK, block_size

N = 4096


class Counting(TorchDispatchMode):
    """Counts the bytes of the storages that tensors of N numbers and more hold, at most at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._held: dict[int, tuple[int, list[weakref.ref[Tensor]]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() >= N:
                    held = self._held.setdefault(storage._cdata, (storage.nbytes(), []))
                    held[1].append(weakref.ref(tensor))
        for key, (_, tensors) in list(self._held.items()):
            if all(one() is None for one in tensors):
                del self._held[key]
        self.peak = max(self.peak, sum(size for size, _ in self._held.values()))
        return found


def _peak(groups: int) -> float:
    """Return the most float64 vectors of length N at once."""
    entries = torch.linspace(-1, 2, N, dtype=torch.float64)
    with Counting() as counting:
        found = diagonal(LambdaOperator(lambda v: entries * v, N), probes=32, groups=groups)
    assert found.groups.shape == (groups, N)
    vectors: float = counting.peak / (8 * N)
    return vectors


def test_each_group_costs_one_vector_its_mean() -> None:
    few, many = _peak(4), _peak(16)
    assert many - few <= 16 - 4
    assert many <= 16 + 2 * BLOCK + 8  # the means, a block of probes with its products, and what is computed


@pytest.mark.parametrize(
    ("n", "block"), [(1, 8), (275_572, 8), (100_000_000, 1), (33_000_000, 4), (10**10, 1)]
)
def test_a_block_of_probes_is_bounded(n: int, block: int) -> None:
    assert block_size(n) == block
    assert 8 * n * block <= 1 << 30 or block == 1


def test_how_many_probes_share_a_pass_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    operator = LambdaOperator(lambda v: matrix @ v + matrix.T @ v, 30)
    together = trace(operator, probes=20)
    monkeypatch.setattr("fedscope.landscape.operators.probes._MEMORY", 8 * 30)
    assert trace(operator, probes=20) == together


def test_a_probe_of_a_trace_is_gone_before_the_next() -> None:
    made: list[weakref.ref[Tensor]] = []

    def product(v: Tensor) -> Tensor:
        assert all(one() is None for one in made)
        made.append(weakref.ref(found := 2 * v))
        return found

    assert trace(LambdaOperator(product, N), probes=4, block=1).value == 2 * N
    assert len(made) == 4
