"""Products kept on disk: found again bit for bit, computed again where a file is damaged."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedscope.landscape import Eigenpairs, top_eigenpairs, trace
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.product_cache import Journaled, JournalSpace
from tests.landscape.cases import Case


class Interrupting(Operator):
    """Passes ``allowed`` products on, then raises as Ctrl-C does."""

    def __init__(self, base: Operator, allowed: int) -> None:
        super().__init__(
            base.shape[0], dtype=base.dtype, device=base.device, blocks=base.blocks, weights=base.weights
        )
        self.base, self.allowed, self.calls = base, allowed, 0

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        self.calls += len(rows)
        if self.calls > self.allowed:
            raise KeyboardInterrupt
        return self.base._apply(rows, onto)

    def sample_forms(self, v: Tensor) -> Tensor | None:
        return self.base.sample_forms(v)


def _pairs(op: Operator) -> Eigenpairs:
    return top_eigenpairs(op, k=2, tol=1e-8)


def test_an_interrupted_run_goes_on_with_the_same_bits(case: Case, tmp_path: Path) -> None:
    whole = _pairs(case.operator)
    with pytest.raises(KeyboardInterrupt):
        _pairs(Journaled(Interrupting(case.operator, 5), tmp_path / "j"))
    counted = Interrupting(case.operator, 10_000)
    journal = Journaled(counted, tmp_path / "j")
    again = _pairs(journal)
    assert torch.equal(again.vectors, whole.vectors)
    assert torch.equal(again.values, whole.values)
    assert torch.equal(again.stderr_data, whole.stderr_data)
    assert journal.found == 5
    assert journal.computed == counted.calls == whole.matvecs - 5


def test_a_finished_run_computes_nothing(case: Case, tmp_path: Path) -> None:
    first = trace(Journaled(case.operator, tmp_path), probes=7)
    again = trace(Journaled(Interrupting(case.operator, 0), tmp_path), probes=7)
    assert again == first


@pytest.mark.parametrize("lost", range(1, 30, 2))
def test_a_file_whose_end_a_power_cut_took_is_computed_again(case: Case, tmp_path: Path, lost: int) -> None:
    first = trace(Journaled(case.operator, tmp_path), probes=3)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-lost] + bytes(lost))
    assert trace(Journaled(case.operator, tmp_path), probes=3) == first


def test_a_damaged_file_is_computed_again(case: Case, tmp_path: Path) -> None:
    first = trace(Journaled(case.operator, tmp_path), probes=7)
    files = sorted(tmp_path.iterdir())
    files[0].write_bytes(files[0].read_bytes()[:-40])
    content = bytearray(files[-1].read_bytes())
    content[len(content) // 2] ^= 1
    files[-1].write_bytes(bytes(content))
    journal = Journaled(case.operator, tmp_path)
    assert trace(journal, probes=7) == first
    assert journal.computed > 0


def test_nothing_is_kept_beyond_the_limit(case: Case, tmp_path: Path) -> None:
    n = case.operator.shape[0]
    journal = Journaled(case.operator, tmp_path / "j", room=JournalSpace(3 * 8 * n))
    for v in torch.eye(n, dtype=torch.float64)[:7]:
        journal.matvec(v)
    kept = list((tmp_path / "j").iterdir())
    assert 1 <= len(kept) <= 3


def test_a_folder_that_cannot_be_made_does_not_stop_the_run(case: Case, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = trace(Journaled(case.operator, tmp_path / "file" / "j"), probes=7)
    assert found == trace(case.operator, probes=7)


def test_a_product_onto_another_basis_is_another_product(case: Case, tmp_path: Path) -> None:
    n, journal = case.operator.shape[0], Journaled(case.operator, tmp_path)
    generator = torch.Generator().manual_seed(5)
    v, one, other = torch.randn(7, n, generator=generator, dtype=torch.float64).split([1, 3, 3])
    alike = one.clone()
    alike[:, 1] += 1.0  # in one column
    for basis in (one, other, alike, one):
        found, wanted = (op.product(v[0], onto=basis).onto for op in (journal, case.operator))
        assert found is not None
        assert wanted is not None
        assert torch.equal(found, wanted)
    assert (journal.computed, journal.found) == (3, 1)
