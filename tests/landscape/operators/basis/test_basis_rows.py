"""Rows in memory and in a file, against dense algebra."""

import tempfile
from pathlib import Path

import pytest
import torch

from fedscope.errors import UserError
from fedscope.landscape.operators.basis import row_space as module
from fedscope.landscape.operators.basis.basis_rows import BasisRows
from fedscope.landscape.operators.basis.projections import Onto
from fedscope.landscape.operators.basis.row_space import RowSpace

N, DTYPE = 700, torch.float64
FOLDERS = [None, Path(tempfile.gettempdir())]
kinds = pytest.mark.parametrize("folder", FOLDERS, ids=["memory", "file"])


def _filled(folder: Path | None = None, count: int = 9, fixed: int = 2) -> BasisRows:
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn(fixed, N, dtype=DTYPE, generator=generator) / N**0.5
    rows = BasisRows(N, DTYPE, torch.device("cpu"), folder=folder, fixed=signs)
    for m in range(count):
        vector = torch.randn(N, dtype=DTYPE, generator=generator)
        rest = rows.orthogonalised(vector)[1] if m else vector
        rows.append(rest)
        torch.testing.assert_close(rows.row(m), rest / rest.norm(), rtol=0, atol=1e-12)
    return rows


@kinds
def test_rows_are_orthonormal_and_what_was_appended(folder: Path | None) -> None:
    Q = _filled(folder).tensor
    torch.testing.assert_close(Q @ Q.T, torch.eye(9, dtype=DTYPE), rtol=0, atol=1e-12)


@kinds
def test_what_rows_do_is_what_their_matrix_does(folder: Path | None) -> None:
    rows = _filled(folder)
    Q = rows.tensor
    v = torch.randn(3, N, dtype=DTYPE, generator=torch.Generator().manual_seed(1))
    coefficients, left = rows.orthogonalised(v[0])
    torch.testing.assert_close(coefficients, Q @ v[0])
    torch.testing.assert_close(left, v[0] - Q.T @ (Q @ v[0]))
    torch.testing.assert_close(rows.without(v), v - v @ Q.T @ Q)
    torch.testing.assert_close(rows.without(v[0]), v[0] - Q.T @ (Q @ v[0]))
    torch.testing.assert_close(Onto(rows) @ v.T, Q @ v.T)
    signs = rows.with_fixed().tensor[:2]
    torch.testing.assert_close(Onto(rows.with_fixed()) @ v[0], torch.cat([signs, Q]) @ v[0])
    torch.testing.assert_close(rows.fixed_inner(), signs @ Q.T)
    assert torch.allclose(torch.cat([piece for _, piece in rows.wide(3)], dim=1), Q[3:])
    scaled = Onto(rows).through(lambda x: 2 * x).through(rows.without)
    torch.testing.assert_close(scaled @ v.T, torch.zeros(9, 3, dtype=DTYPE), rtol=0, atol=1e-12)
    assert len(scaled) == 9


@kinds
def test_a_rotation_keeps_combinations_and_the_last_row(folder: Path | None) -> None:
    rows = _filled(folder)
    Q = rows.tensor.clone()
    turn, _ = torch.linalg.qr(torch.randn(8, 8, dtype=DTYPE, generator=torch.Generator().manual_seed(2)))
    rows.rotate(turn[:, :3])
    found = rows.tensor
    wanted = torch.cat([turn[:, :3].T @ Q[:8], Q[8:]])
    assert len(rows) == 4
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(found @ found.T, torch.eye(4, dtype=DTYPE), rtol=0, atol=1e-12)


def test_a_file_has_the_bits_of_memory() -> None:
    in_memory, in_file = (_filled(folder) for folder in FOLDERS)
    assert torch.equal(in_memory.tensor, in_file.tensor)


def test_a_copy_grows_and_the_first_stays() -> None:
    for folder in FOLDERS:
        rows = _filled(folder)
        before = rows.tensor.clone()
        own = rows.first(8).continued(rows.row(8))
        assert own is not rows
        own.append(own.orthogonalised(torch.ones(N, dtype=DTYPE))[1])
        assert torch.equal(rows.tensor, before)


def test_a_file_has_no_name_and_hands_its_pages_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 4 * N)
    rows = _filled(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
    assert torch.equal(rows.tensor, _filled().tensor)


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(UserError, match=r"no room for a basis of 0.0 GiB \(No space left on device\)"):
        BasisRows(N, DTYPE, torch.device("cpu"), folder=tmp_path)


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="a basis in a file needs the CPU, not meta"):
        BasisRows(N, DTYPE, torch.device("meta"), folder=FOLDERS[1])


def test_a_device_reads_longer_pieces_than_a_processor() -> None:
    """A call on an accelerator takes as long for a few numbers as for millions."""
    n, counts = 1 << 25, {}
    for device in ("cpu", "meta"):  # the second has shapes alone, and is no processor
        kept = RowSpace(2, n, torch.float32, torch.device(device))
        columns = [columns for columns, _ in kept.pieces(slice(0, 2))]
        assert [piece.start for piece in columns[1:]] == [piece.stop for piece in columns[:-1]]
        assert (columns[0].start, columns[-1].stop) == (0, n)
        counts[device] = len(columns)
    assert counts == {"cpu": 256, "meta": 4}
