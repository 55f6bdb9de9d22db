"""What error bars over the samples rest on: the laws of an operator that is a mean over batches."""

import math

import torch
from torch import Tensor

from fedscope.landscape.operators.batch_mean import BatchMean
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.testing.operators import OperatorConformance


class BatchMeanConformance(OperatorConformance):
    """Laws of :class:`fedscope.landscape.BatchMean`, beside those of every operator."""

    def operator(self) -> BatchMean:
        """Return the operator, the same at every call."""
        raise NotImplementedError("return the operator under test")

    def test_a_batchs_part_is_linear_and_symmetric(self) -> None:
        """A_b (2v − 3w) = 2 A_b v − 3 A_b w, and ⟨w, A_b v⟩ = ⟨A_b w, v⟩."""
        op, rows = self._with_rows(2)
        v, w = rows.double()
        for b in range(len(op.weights or ())):
            Av, Aw = op.batch_products(b, rows).double()
            mixed = op.batch_products(b, (2 * rows[0] - 3 * rows[1])[None])[0].double()
            self._same(mixed, 2 * Av - 3 * Aw, f"the part of batch {b} is not linear")
            most = self._tol(op) * float(Av.norm() * w.norm() + Aw.norm() * v.norm())
            assert abs(float(w @ Av - Aw @ v)) <= most, f"the part of batch {b} is not symmetric"

    def test_forms_are_the_batches_own(self) -> None:
        """What a product says of batch b is vᵀA_b v, and uᵀA_b v with other rows u."""
        op, rows = self._with_rows(2)
        v, u = rows.double()
        found = op.product(rows[0], onto=rows[1:])
        assert found.forms is not None
        assert found.onto is not None
        parts = torch.stack(
            [op.batch_products(b, rows[:1])[0].double() for b in range(len(op.weights or ()))]
        )
        self._same(found.forms, parts @ v, "forms are not those of batch_products()")
        self._same(found.onto[:, 0], parts @ u, "onto is not that of batch_products()")

    def test_the_mean_of_the_parts_is_the_operator(self) -> None:
        """A v = Σ_b (n_b/N)·A_b v, for several rows at once as for one after the other."""
        op, rows = self._with_rows(3)
        assert op.weights, "a mean over batches says how many samples each has"
        parts = torch.stack([op.batch_products(b, rows).double() for b in range(len(op.weights))])
        shares = torch.tensor(op.weights, dtype=torch.float64, device=op.device) / sum(op.weights)
        found, mean = torch.stack([op.matvec(row) for row in rows]), torch.einsum("b,bmn->mn", shares, parts)
        self._same(found, mean, "A is not the mean of its parts")

    def test_rows_are_left_as_they_are(self) -> None:
        """``batch_products`` does not write into its argument, and gives the same bits twice."""
        op, rows = self._with_rows(2)
        before = rows.clone()
        first = op.batch_products(0, rows).clone()
        assert torch.equal(rows, before), "batch_products() changed the rows"
        assert torch.equal(first, op.batch_products(0, rows)), "the part of batch 0 changed between two calls"

    def test_it_gets_errors_over_the_samples(self) -> None:
        """With two batches or more ``stderr_data`` is a number."""
        op = self.operator()
        found = trace(op, probes=4)
        if len(op.weights or ()) > 1:
            assert math.isfinite(found.stderr_data), "the trace has no error over the samples"

    def _with_rows(self, count: int) -> tuple[BatchMean, Tensor]:
        op, generator = self.operator(), torch.Generator().manual_seed(self.seed)
        rows = torch.randn(count, op.shape[0], generator=generator, dtype=torch.float64)
        return op, rows.to(op.device, op.dtype)
