"""How much memory the parts of a measurement may take: graphs, the Krylov basis, probes that are at work."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope import process
from fedscope.errors import UserError
from fedscope.landscape.loss.parameter_patterns import chosen
from fedscope.landscape.operators.basis.storage import BasisStorage
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.probes import BLOCK
from fedscope.landscape.spectral.data_error import SKETCH
from fedscope.landscape.spectral.working_memory import Vectors
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem

ROWS = 64  # of a basis that is not restarted: certified values of trained networks take 10 to 50
LEAST_ROWS = 20  # and two for each pair
BATCHES = 16  # that tell the data's errors, on a CPU; there small ones are as fast
_LONG = 1 << 31  # parameters times samples
_BESIDE = SKETCH + 1  # rows of a basis beside those that are used: the sketch's signs, and the next
_APART = 32 << 20  # bytes of a vector that is freed at once, and not kept in the heap between others
_HEAP = 0.9  # of the memory; the rest is lost between the heap's blocks, where vectors are among them
_PROGRAM = 256 << 20  # bytes that a process takes before it has samples
_GRAPHS = 64 << 20  # least bytes that are left to graphs before another storage is tried


@dataclass(frozen=True)
class Resources:
    """What is chosen; by default what each estimator chooses by itself."""

    graphs: int | None = None  # bytes
    storage: BasisStorage = field(default_factory=BasisStorage)
    rows: int | None = None  # of a basis, most
    block: int | None = None  # probes that are at work together
    trace_rows: int | None = None  # of the basis that a trace may enlarge, for which probes are kept

    @property
    def entry(self) -> dict[str, object]:
        """What of it may change a digit, for a result's name; the bytes of graphs are in the operator's."""
        chosen = {"rows": self.rows, "block": self.block, "trace_rows": self.trace_rows}
        return {name: value for name, value in chosen.items() if value is not None}


def is_long(operator: LossOperator) -> bool:
    """Say whether a measurement is so long that a plan's few products do not count: minutes, on a CPU."""
    return operator.shape[0] * sum(operator.weights or ()) >= _LONG


def resources_of(
    problem: Problem, request: Request, memory: int | None, group: ProcessGroup | None = None
) -> Resources:
    """Return what is chosen for ``memory`` bytes of the whole process, or nothing without.

    The processes of a ``group`` choose the same, for the one that has taken most so far.
    """
    if memory is None:
        return Resources()
    trained: list[tuple[str, Tensor]] = [
        (name, p) for name, p in problem.model.named_parameters() if p.requires_grad
    ]
    named = chosen(trained, request.parameters or None)
    n, d = sum(p.numel() for _, p in named), named[0][1].element_size()
    batches = max(min(BATCHES, problem.batches.samples), len(problem.batches))
    vectors = Vectors(n, d, batches)
    process.reuse_freed_memory(_APART)
    base = torch.tensor(process.resident_memory(), device=named[0][1].device)
    if group is not None:
        dist.all_reduce(base, dist.ReduceOp.MAX, group=group)
    return fitting(memory, int(base), vectors, pairs=request.eigenpairs)


def fitting(
    memory: int,
    base: int,
    vectors: Vectors,
    *,
    pairs: int,
    folder: Path | None = None,
) -> Resources:
    """Return how to stay within ``memory`` bytes.

    The basis is kept in memory if it fits, else in a file if the disk has room; it is restarted where even
    that does not fit. What is left over is for the graphs.

    Args:
        memory: of the whole process.
        base: that is taken before: program, network, samples.
        vectors: of the operator.
        pairs: eigenpairs that are wanted.
        folder: for a file.
    """
    n, d = vectors.n, vectors.itemsize
    least, rows = (min(n, most) for most in (LEAST_ROWS + 2 * pairs, max(ROWS, LEAST_ROWS + 2 * pairs)))
    share = 1.0 if d * n >= _APART else _HEAP
    # The operator's copies of the weights, a product as autograd gives it; the eigenvectors that wait beside
    # a trace, and the row that would come next.
    beside = (4 + pairs + 1) * d * n
    fixed = base + beside + max(vectors.step(), vectors.probes(1)) + _GRAPHS
    room = int(share * memory) - fixed
    storage, rows = _storage(room, vectors, rows, least, BasisStorage(folder=folder))
    if rows < least:
        needed = (fixed + vectors.basis(least, replace(storage, capacity=least + 1))) / share
        raise UserError(
            f"--memory {_shown(memory)} is too little for {n:,} parameters: give {_shown(needed)} or more, a "
            f"folder on a disk with more room (TMPDIR), {_fewer(base, share * (needed - memory))}or a block "
            "of --parameters"
        )
    storage = replace(storage, capacity=rows + 1)
    left = room + _GRAPHS - vectors.basis(rows, storage)
    block = next(b for b in range(BLOCK, 0, -1) if b == 1 or vectors.probes(b) <= vectors.step() + left // 2)
    left -= max(0, vectors.probes(block) - max(vectors.step(), vectors.probes(1)))
    enlarged = vectors.kept() <= left // 2
    graphs = (left - (vectors.kept() if enlarged else 0)) // 2  # the other half: what a product makes of one
    return Resources(graphs, storage, rows, block, rows if enlarged else 0)


def _storage(
    room: int, vectors: Vectors, rows: int, least: int, plain: BasisStorage
) -> tuple[BasisStorage, int]:
    """Return the first storage that so many rows fit in; else the one with most, and how many."""
    n, d = vectors.n, vectors.itemsize
    if vectors.basis(rows, replace(plain, capacity=rows + 1)) <= room:
        return plain, rows
    file = replace(plain, place="file")
    free = shutil.disk_usage(file.directory).free // 2 - vectors.batches * n * d  # for one of two bases
    on_disk = free // (n * d) - 1 - _BESIDE
    if vectors.basis(rows, file) <= room and on_disk >= least:
        return file, min(rows, on_disk)
    return plain, min(rows, room // (n * d) - _BESIDE)


def _fewer(base: int, short: float) -> str:
    return "fewer --samples, " if base - _PROGRAM >= short else ""


def _shown(size: float) -> str:
    return f"{size / 2**30:.3g}G" if size >= 2**30 else f"{size / 2**20:.0f}M"
