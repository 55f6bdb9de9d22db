"""Vectors too long to be multiplied at once: piece by piece they make the same products and estimates."""

import errno
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fedscope.choices import MIN_PROBES
from fedscope.landscape import Hessian, top_eigenpairs, trace
from fedscope.landscape.operators.base import Product
from fedscope.landscape.operators.basis.row_space import WHOLE, RowSpace
from fedscope.landscape.spectral.hutchinson_trace import _TraceRun
from fedscope.landscape.spectral.spectral_results import Eigenpairs, Trace
from fedscope.process import resident_memory

MODULES = ("basis.row_space", "basis.basis_rows", "batch_mean")


@pytest.fixture
def operator() -> Callable[[], Hessian]:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(96, 8, generator=draw)
    batches = list(zip(inputs.split(16), inputs[:, :4].argmax(1).split(16), strict=True))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    return lambda: Hessian(model, nn.CrossEntropyLoss(), batches)


def _found(operator: Hessian, folder: Path | None = None) -> tuple[Eigenpairs, Trace]:
    pairs = top_eigenpairs(operator, k=2, basis_folder=folder)
    return pairs, trace(operator, known=pairs.subspace, rtol=0.02, basis_folder=folder)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(f"fedscope.landscape.operators.{module}.WHOLE", 64)
    monkeypatch.setattr("fedscope.landscape.spectral.probe_tally.WHOLE", 64)
    monkeypatch.setattr("fedscope.landscape.operators.basis.row_space.PIECE", 256)
    monkeypatch.setattr("fedscope.landscape.operators.batch_mean.PIECE", 64)


def test_long_vectors_make_the_same_estimates(
    operator: Callable[[], Hessian], request: pytest.FixtureRequest
) -> None:
    whole, total = _found(operator())
    assert whole.subspace is not None
    assert whole.subspace.rows.plain
    request.getfixturevalue("short_pieces")
    pieces, summed = _found(operator())
    assert pieces.subspace is not None
    assert not pieces.subspace.rows.plain
    torch.testing.assert_close(pieces.values, whole.values, rtol=1e-5, atol=0)
    torch.testing.assert_close(pieces.stderr_data, whole.stderr_data, rtol=1e-3, atol=0)
    assert summed.value == pytest.approx(total.value, rel=1e-5)
    assert summed.stderr_probe == pytest.approx(total.stderr_probe, rel=1e-3)
    assert summed.samples == pytest.approx(total.samples, rel=1e-4)
    assert summed.batches == pytest.approx(total.batches, rel=1e-4)


@pytest.mark.usefixtures("short_pieces")
def test_they_are_the_same_bits_in_a_file(operator: Callable[[], Hessian], tmp_path: Path) -> None:
    (memory, in_memory), (file, in_file) = (_found(operator(), folder) for folder in (None, tmp_path))
    assert torch.equal(memory.values, file.values)
    assert torch.equal(memory.vectors, file.vectors)
    assert in_memory.samples == in_file.samples


@pytest.mark.skipif(sys.platform != "linux", reason="other systems reserve memory in other ways")
def test_long_rows_take_memory_as_they_are_written() -> None:
    """Room that grows by copying takes twice the memory of all rows for a moment."""
    n = WHOLE + 1
    before = resident_memory()
    space = RowSpace(5000, n, torch.float32, torch.device("cpu"))  # 84 GB
    space.append(torch.ones(n))
    assert 4 * n <= resident_memory() - before < 12 * n
    assert space[slice(0, 1), slice(n - 2, n)].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("long", [False, True])
def test_room_for_a_long_basis_is_made_at_once(
    operator: Callable[[], Hessian], monkeypatch: pytest.MonkeyPatch, *, long: bool
) -> None:
    rows = []

    def made(rows_at_once: int, *given: object) -> RowSpace:
        rows.append(rows_at_once)
        return RowSpace(rows_at_once, *given)  # type: ignore[arg-type]

    monkeypatch.setattr("fedscope.landscape.operators.basis.basis_rows.RowSpace", made)
    monkeypatch.setattr("fedscope.landscape.spectral.eigenpairs.reserves", lambda *_: long)
    found = top_eigenpairs(operator())
    assert (rows[0] > 8 + found.matvecs) == long  # beside eight signs


def test_where_nothing_may_be_reserved_the_basis_grows(
    operator: Callable[[], Hessian], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue("short_pieces")
    expected = top_eigenpairs(operator())
    own, refused, most = mmap.mmap, [], 60 * 4 * operator().shape[0]

    def limited(file: int, size: int, *flags: int) -> mmap.mmap:
        if size > most:
            refused.append(size)
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return own(file, size, *flags)

    monkeypatch.setattr("fedscope.landscape.operators.basis.row_space.mmap.mmap", limited)
    assert torch.equal(top_eigenpairs(operator()).values, expected.values)
    assert len(refused) == 1


@pytest.mark.usefixtures("short_pieces")
def test_a_file_is_read_once_for_all_batches(
    operator: Callable[[], Hessian], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, read, numbers = operator(), RowSpace.__getitem__, 0

    def counted(room: RowSpace, part: tuple[slice, slice]) -> torch.Tensor:
        nonlocal numbers
        rows, columns = part
        numbers += (rows.stop - rows.start) * (columns.stop - columns.start) if rows.stop else 0
        return read(room, part)

    monkeypatch.setattr(RowSpace, "__getitem__", counted)
    found = top_eigenpairs(own, by_sample=False, basis_folder=tmp_path)
    steps, signs = found.matvecs, 8
    rows = sum(signs + m + 1 for m in range(steps))
    assert len(own.weights or ()) == 6  # the projections of their products, two turns of orthogonalising
    assert own.shape[0] * rows < numbers < 4 * own.shape[0] * rows


def test_a_basis_that_may_not_grow_keeps_no_probes(
    operator: Callable[[], Hessian], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, take, kept = operator(), _TraceRun.take, []

    def taken(run: _TraceRun, count: int, keep: int) -> list[tuple[torch.Tensor, Product]]:
        kept.append(keep)
        return take(run, count, keep)

    monkeypatch.setattr(_TraceRun, "take", taken)
    known = top_eigenpairs(own, k=2, max_basis=6).subspace
    assert known is not None
    grown = trace(own, known=known, rtol=0.02)
    assert kept[0] == MIN_PROBES
    kept.clear()
    fixed = trace(own, known=known, rtol=0.02, max_basis=0)
    assert not any(kept)
    assert fixed.deflated == len(known.rows) < grown.deflated
    assert fixed.matvecs == fixed.probes
    assert abs(fixed.value - grown.value) < 4 * (fixed.stderr_probe + grown.stderr_probe)
