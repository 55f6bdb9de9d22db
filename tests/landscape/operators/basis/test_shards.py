"""A basis sharded by coordinates over 1, 2 and 4 processes that share the batches: the same bits."""

import gc
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fedscope.landscape import BasisStorage, Batches, Hessian, LambdaOperator, top_eigenpairs, trace
from fedscope.landscape.operators.basis.shards import Shards
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from tests.processes import ranks

pytestmark = pytest.mark.slow

WORLDS, N = (1, 2, 4), 100_000


def _hessian(group: dist.ProcessGroup | None) -> Hessian:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 41), nn.Tanh(), nn.Linear(41, 5))
    inputs = torch.randn(30, 9, generator=torch.Generator().manual_seed(1))
    labels = inputs[:, :5].argmax(1)
    return Hessian(model, nn.functional.cross_entropy, Batches(inputs, labels, 10), group=group)


def _measured(group: dist.ProcessGroup | None) -> list[Tensor]:
    """An eigenpair with its errors, from a basis that is restarted, and a trace beside it."""
    operator = _hessian(group)
    pairs = top_eigenpairs(operator, max_basis=8, storage=BasisStorage(group=group))
    assert pairs.subspace is not None
    total = trace(operator, known=pairs.subspace, probes=3)
    found = [pairs.values, pairs.vectors, pairs.residuals, pairs.stderr_data, pairs.bias_data]
    return [*found, torch.tensor([total.value, total.stderr_probe]), pairs.subspace.basis]


def _bytes(group: dist.ProcessGroup) -> Tensor:
    """The bytes that this process keeps of 10 rows."""
    numbers = torch.linspace(1, 2, N)
    operator = LambdaOperator(lambda v: numbers * v, N, torch.float32)
    storage = BasisStorage(group=group, capacity=10)
    start = torch.ones(N, dtype=torch.float64)
    krylov = Lanczos(operator, start, generator=torch.Generator().manual_seed(0), storage=storage)
    for _ in range(9):
        krylov.step()
    return torch.tensor(krylov._rows._kept._room.numbers.nbytes)


def _work(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store{world}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        group = dist.group.WORLD
        assert group is not None
        numbers = torch.arange(2000.0).view(2, 1000) + 5000 * rank
        found = [*_measured(group), _bytes(group), Shards(1000, group).exchanged(numbers)]
        torch.save(found, Path(folder) / f"{world}-{rank}.pt")
    finally:
        dist.destroy_process_group()
        gc.collect()


def test_one_two_and_four_processes_find_the_same_bits_and_share_the_memory(tmp_path: Path) -> None:
    for world in WORLDS:
        ranks(world, _work, world, str(tmp_path))
    each_rank = [(world, rank) for world in WORLDS for rank in range(world)]
    found = {each: torch.load(tmp_path / "{}-{}.pt".format(*each)) for each in each_rank}
    for (world, _), (*measured, kept, _) in found.items():
        for ours, theirs in zip(measured, found[1, 0], strict=False):
            assert torch.equal(ours, theirs)
        assert int(kept) <= (1 / world + 0.1) * 10 * 4 * N
        assert int(kept) <= 1.1 / world * 10 * 4 * N
    values, vectors, residuals = found[4, 0][:3]
    dense = _hessian(None).to_dense().double()
    exact = torch.linalg.eigvalsh(dense)[-1]
    assert abs(float(exact - values[0])) <= float(residuals[0]) + 1e-6 * float(exact)
    torch.testing.assert_close(
        dense @ vectors[:, 0].double(), exact * vectors[:, 0].double(), rtol=0, atol=1e-3
    )
    for world in WORLDS:
        pieces = torch.cat([found[world, rank][-1] for rank in range(world)], dim=2)[:, :, :1000]
        for rank in range(world):
            assert torch.equal(pieces[rank], torch.arange(2000.0).view(2, 1000) + 5000 * rank)
