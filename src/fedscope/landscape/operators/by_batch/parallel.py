"""Products shared by the processes of a ``torch.distributed`` group, each with every size-th batch."""

import torch.distributed as dist
from torch import Tensor


def share(batches: int, group: dist.ProcessGroup | None) -> range:
    """Return the numbers of this process's batches; all of them without a group."""
    if group is None:
        return range(batches)
    return range(dist.get_rank(group), batches, dist.get_world_size(group))


def add_up(group: dist.ProcessGroup | None, *tensors: Tensor | None) -> None:
    """Replace the tensors by their sums over the group, the same bits in every process."""
    if group is not None:
        for tensor in tensors:
            if tensor is not None:
                dist.all_reduce(tensor, group=group)
