"""How much memory the parts of a measurement may take: graphs, the Krylov basis, probes that are at work."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope import process
from fedscope.choices import MIN_PROBES
from fedscope.errors import UserError
from fedscope.landscape.loss.parameter_patterns import chosen
from fedscope.landscape.operators.basis.row_space import HELD, WHOLE
from fedscope.landscape.operators.batch_mean import IMAGES
from fedscope.landscape.operators.probes import BLOCK
from fedscope.landscape.spectral.data_error import SKETCH
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem

ROWS = 64  # of a basis that is not restarted: certified values of trained networks take 10 to 50
LEAST_ROWS = 20  # and two for each pair
BATCHES = 16  # that tell the data's errors, on a CPU; there small ones are as fast
_APART = 32 << 20  # bytes of a vector that is freed at once, and not kept in the heap between others
_HEAP = 0.9  # of the memory; the rest is lost between the heap's blocks, where vectors are among them
_WIDE = 8  # bytes of a float64
_GRAPHS = 64 << 20  # least bytes that are left to graphs before another storage is tried


@dataclass(frozen=True)
class Resources:
    """What is chosen; by default what each estimator chooses by itself."""

    graphs: int | None = None  # bytes
    basis_folder: Path | None = None  # of a file for the basis
    rows: int | None = None  # of a basis, most
    block: int | None = None  # probes that are at work together
    trace_rows: int | None = None  # of the basis that a trace may enlarge, for which probes are kept

    @property
    def entry(self) -> dict[str, object]:
        """What of it may change a digit, for a result's name; the bytes of graphs are in the operator's."""
        chosen = {"rows": self.rows, "block": self.block, "trace_rows": self.trace_rows}
        return {name: value for name, value in chosen.items() if value is not None}


@dataclass(frozen=True)
class Vectors:
    """The bytes of vectors of n numbers, and of rows of a basis, that estimators take beside graphs."""

    n: int
    itemsize: int  # d
    batches: int  # B; 0 without

    def step(self) -> int:
        """Return the bytes of a Lanczos step: the sum, a batch's product, and those that wait together."""
        d = self.itemsize
        waiting = min(self.batches * d, max(IMAGES // self.n, d))
        product = 2 * _WIDE + 2 * d + waiting * (1 if waiting == d else 2)
        return self.n * max(product, d + 3 * _WIDE)

    def probes(self, block: int) -> int:
        """Return the bytes of a block of probes: sums, a batch's products, the projections, the products."""
        each = 2 * _WIDE + 5 * self.itemsize
        return self.n * (block * each + _WIDE) + _WIDE * min(self.n, WHOLE)

    def kept(self, probes: int = MIN_PROBES) -> int:
        """Return the bytes of probes that are kept with their products: a first stage's, or a density's."""
        return self.n * 2 * self.itemsize * probes

    def basis(self, rows: int, *, in_file: bool = False) -> int:
        """Return the bytes in memory of so many rows, the next one and the sketch's signs included."""
        size = self.n * self.itemsize * (rows + 1 + SKETCH)
        return min(HELD, size) if in_file else size


def resources_of(
    problem: Problem, request: Request, memory: int | None, group: ProcessGroup | None = None
) -> Resources:
    """Return what is chosen for ``memory`` bytes of the whole process, or nothing without.

    The processes of a ``group`` choose the same, for the one that has taken most so far.
    """
    trained: list[tuple[str, Tensor]] = [
        (name, p) for name, p in problem.model.named_parameters() if p.requires_grad
    ]
    named = chosen(trained, request.parameters or None)
    n, d = sum(p.numel() for _, p in named), named[0][1].element_size()
    if memory or n * d >= _APART:
        process.reuse_freed_memory(_APART)
    if memory is None:
        return Resources()
    batches = max(min(BATCHES, problem.batches.samples), len(problem.batches))
    base = torch.tensor(process.resident_memory(), device=named[0][1].device)
    if group is not None:
        dist.all_reduce(base, dist.ReduceOp.MAX, group=group)
    return fitting(memory, int(base), Vectors(n, d, batches), pairs=request.eigenpairs)


def fitting(memory: int, base: int, vectors: Vectors, *, pairs: int) -> Resources:
    """Return how to stay within ``memory`` bytes of the whole process.

    The basis is kept in memory if it fits, else in a file if the disk has room, else it is restarted. Half of
    what is left over is for the graphs, half for what a product makes of one.

    Args:
        memory: of the whole process.
        base: that is taken before: program, network, samples.
        vectors: of the operator.
        pairs: eigenpairs that are wanted.
    """
    n, row = vectors.n, vectors.n * vectors.itemsize
    least = min(n, LEAST_ROWS + 2 * pairs)
    rows, folder = min(n, max(ROWS, least)), None
    share = 1.0 if row >= _APART else _HEAP
    # The operator's copies of the weights, a product as autograd gives it; the eigenvectors that wait beside
    # a trace, and the row that would come next.
    fixed = base + (4 + pairs + 1) * row + max(vectors.step(), vectors.probes(1)) + _GRAPHS
    room = int(share * memory) - fixed
    if vectors.basis(rows) > room:
        place = Path(tempfile.gettempdir())
        on_disk = 2 * (rows + 1 + SKETCH) * row + vectors.batches * row  # for two bases
        if vectors.basis(rows, in_file=True) <= room and on_disk <= shutil.disk_usage(place).free:
            folder = place
        else:
            rows = room // row - 1 - SKETCH
    if rows < least:
        needed = (fixed + vectors.basis(least)) / share
        raise UserError(
            f"--memory {size_text(memory)} is too little for {n:,} parameters beside the {size_text(base)} "
            f"of program, network and samples: give {size_text(needed)} or more, a folder on a disk with "
            "more room (TMPDIR), fewer --samples, or a block of --parameters"
        )
    left = room + _GRAPHS - vectors.basis(rows, in_file=folder is not None)
    block = next(b for b in range(BLOCK, 0, -1) if b == 1 or vectors.probes(b) <= vectors.step() + left // 2)
    left -= max(0, vectors.probes(block) - max(vectors.step(), vectors.probes(1)))
    enlarged = vectors.kept() <= left // 2
    graphs = (left - (vectors.kept() if enlarged else 0)) // 2
    return Resources(graphs, folder, rows, block, rows if enlarged else 0)


def size_text(size: float) -> str:
    return f"{size / 2**30:.3g}G" if size >= 2**30 else f"{size / 2**20:.0f}M"
