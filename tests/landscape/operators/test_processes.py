"""1, 2 and 4 processes that share the batches of products find the same bits."""

import gc
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fedscope.landscape import Batches, Hessian, top_eigenpairs, trace
from fedscope.landscape.operators.batch_mean import exchanged, joined
from tests.processes import ranks

pytestmark = pytest.mark.slow

WORLDS = 1, 2, 4


def _hessian(group: dist.ProcessGroup | None) -> Hessian:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 41), nn.Tanh(), nn.Linear(41, 5))
    inputs = torch.randn(30, 9, generator=torch.Generator().manual_seed(1))
    labels = inputs[:, :5].argmax(1)
    return Hessian(model, nn.functional.cross_entropy, Batches(inputs, labels, 10), group=group)


def _measured(group: dist.ProcessGroup | None) -> list[Tensor]:
    """An eigenpair with its errors, from a basis that is restarted, and a trace beside it."""
    operator = _hessian(group)
    pairs = top_eigenpairs(operator, max_basis=8)
    assert pairs.subspace is not None
    total = trace(operator, known=pairs.subspace, probes=3)
    found = [pairs.values, pairs.vectors, pairs.residuals, pairs.stderr_data, pairs.bias_data]
    return [*found, torch.tensor([total.value, total.stderr_probe]), pairs.subspace.basis]


def _work(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store{world}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        group = dist.group.WORLD
        assert group is not None
        numbers = torch.arange(2002.0).view(2, 1001) + 5000 * rank
        whole = torch.stack([joined(group, stretch, 1001) for stretch in exchanged(group, numbers)])
        torch.save([*_measured(group), whole], Path(folder) / f"{world}-{rank}.pt")
    finally:
        dist.destroy_process_group()
        gc.collect()


def test_one_two_and_four_processes_find_the_same_bits(tmp_path: Path) -> None:
    for world in WORLDS:
        ranks(world, _work, world, str(tmp_path))
    each_rank = [(world, rank) for world in WORLDS for rank in range(world)]
    found = {each: torch.load(tmp_path / "{}-{}.pt".format(*each)) for each in each_rank}
    for *measured, _ in found.values():
        for ours, theirs in zip(measured, found[1, 0], strict=False):
            assert torch.equal(ours, theirs)
    values, vectors, residuals = found[4, 0][:3]
    dense = _hessian(None).to_dense().double()
    exact = torch.linalg.eigvalsh(dense)[-1]
    assert abs(float(exact - values[0])) <= float(residuals[0]) + 1e-6 * float(exact)
    torch.testing.assert_close(
        dense @ vectors[:, 0].double(), exact * vectors[:, 0].double(), rtol=0, atol=1e-3
    )
    for (world, _), (*_, whole) in found.items():
        for rank in range(world):
            assert torch.equal(whole[rank], torch.arange(2002.0).view(2, 1001) + 5000 * rank)
