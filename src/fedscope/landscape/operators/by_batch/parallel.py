"""Products shared by the processes of a ``torch.distributed`` group, each with every size-th batch."""

import torch
import torch.distributed as dist
from torch import Tensor


def share(batches: int, group: dist.ProcessGroup | None) -> range:
    if group is None:
        return range(batches)
    return range(dist.get_rank(group), batches, dist.get_world_size(group))


def add_up(group: dist.ProcessGroup | None, *tensors: Tensor | None) -> None:
    """Replace the tensors by their sums over the group, the same bits in every process."""
    if group is not None:
        for tensor in tensors:
            if tensor is not None:
                dist.all_reduce(tensor, group=group)


def exchanged(group: dist.ProcessGroup, rows: Tensor) -> Tensor:
    """Return this process's stretch of the coordinates of every process's rows (m, n): (R, m, ⌈n/R⌉)."""
    ranks = group.size()
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % ranks))
    pieces = torch.stack(padded.chunk(ranks, dim=1))
    found = torch.empty_like(pieces)
    dist.all_to_all_single(found, pieces, group=group)
    return found


def joined(group: dist.ProcessGroup, stretch: Tensor, n: int) -> Tensor:
    """Return rows (m, n) of which every process gives its stretch of the coordinates."""
    found = [torch.empty_like(stretch) for _ in range(group.size())]
    dist.all_gather(found, stretch.contiguous(), group=group)
    return torch.cat(found, dim=1)[:, :n].contiguous()
