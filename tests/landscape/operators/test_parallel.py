"""Two processes that share the batches, against one."""

import gc
from pathlib import Path

import torch
import torch.distributed as dist

from fedscope.landscape import EmpiricalFisher, GaussNewton, Hessian, MonteCarloFisher, surface
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.surfaces.point_cache import PointFile
from tests.landscape.cases import convnet
from tests.landscape.skipping import images, skipping
from tests.processes import ranks

SHARED: list[type[LossOperator]] = [Hessian, GaussNewton, MonteCarloFisher]
KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher]


def _products(operator: LossOperator) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 81, dtype=torch.float64, generator=generator)
    product = operator.product(rows[0], onto=rows)
    assert product.forms is not None
    assert product.onto is not None
    block = operator.products(rows)
    alone = operator.matvec(rows[0])  # with a group batch by batch
    return [
        alone,
        product.vector,
        product.forms,
        product.onto,
        *(each.vector for each in block),
        operator.gradient(),
    ]


def _given_up(kind: type[LossOperator], group: dist.ProcessGroup | None) -> tuple[torch.Tensor, str | None]:
    """A product of a network that is another one when folded, on the last batch alone; and what is said."""
    operator = kind(skipping(), torch.nn.functional.cross_entropy, images(), group=group)
    product = operator.matvec(torch.ones(operator.shape[0], dtype=torch.float64))
    return product, operator.form.reason


def _grid(keep: Path | None) -> torch.Tensor:
    case = convnet()
    directions = torch.randn(2, 81, generator=torch.Generator().manual_seed(1)).unbind()
    found = surface(
        case.model, case.loss_fn, case.batches, directions=directions, grid=(9, 5), adaptive=0.01, keep=keep,
        group=dist.group.WORLD if dist.is_initialized() else None,
    )  # fmt: skip
    assert found.stderr is not None
    return torch.stack([found.loss, found.stderr])


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    try:
        case = convnet()
        found = [
            _products(kind(case.model, case.loss_fn, case.batches, group=dist.group.WORLD)) for kind in SHARED
        ]
        torch.save(found, Path(folder) / f"{rank}.pt")
        torch.save([_given_up(kind, dist.group.WORLD) for kind in KINDS], Path(folder) / f"plain{rank}.pt")
        kept = Path(folder) / f"kept{rank}"
        torch.save([_grid(kept), _grid(kept)], Path(folder) / f"grids{rank}.pt")
    finally:
        dist.destroy_process_group()
        gc.collect()  # ends the group's threads, which operators' cycles keep, before Python ends


def test_two_processes_give_what_one_gives_and_the_same_bits(tmp_path: Path) -> None:
    ranks(2, _work, str(tmp_path))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    case = convnet()
    for kind, ours, theirs in zip(SHARED, first, second, strict=True):
        for expected, a, b in zip(
            _products(kind(case.model, case.loss_fn, case.batches)), ours, theirs, strict=True
        ):
            assert torch.equal(a, b)
            torch.testing.assert_close(a, expected, rtol=1e-12, atol=1e-13)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"plain{rank}.pt")
        for kind, (product, reason) in zip(KINDS, found, strict=True):
            expected, said = _given_up(kind, None)
            torch.testing.assert_close(product, expected, rtol=1e-12, atol=1e-13)
            assert reason == said == "its loss would differ in batch 3 of 3"
    for rank in (0, 1):
        for ours in torch.load(tmp_path / f"grids{rank}.pt"):
            assert torch.equal(ours, _grid(None))
    (file,) = (tmp_path / "kept0" / "points").iterdir()  # the first process keeps, each row once
    lines = [line for line in file.read_bytes().split(b"\n") if line]
    assert len(lines) == len(PointFile(file).read())
    assert not (tmp_path / "kept1").exists()
