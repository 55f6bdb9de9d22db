"""What the estimators of :mod:`fedscope.landscape` rely on: the laws of a symmetric operator.

Inherit and return the operator; with :meth:`OperatorConformance.dense` its products are compared with a
matrix too. Tolerances are relative to the size of the product: ``tol`` is 1e-9 for float64, 1e-4 for float32.
"""

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator, runs


class OperatorConformance:
    """Laws of :class:`fedscope.landscape.Operator`; a failed one is an ``AssertionError`` that names it."""

    tol: float | None = None  # relative; None: by the dtype
    seed = 0  # of the vectors that are tried

    def operator(self) -> Operator:
        """Return the operator, the same at every call."""
        raise NotImplementedError("return the operator under test")

    def dense(self) -> Tensor | None:
        """Return its matrix (n, n), or None where that is not at hand."""
        return None

    def test_a_product_has_the_shape_dtype_and_device_of_the_operator(self) -> None:
        """A v is (n,), in the operator's dtype, on its device, whatever the vector's are."""
        op, (v,) = self._with_vectors(1)
        found = op.matvec(v.double())
        assert found.shape == v.shape, f"A v has shape {tuple(found.shape)}, not {tuple(v.shape)}"
        assert found.dtype == op.dtype, f"A v is of {found.dtype}, not {op.dtype}"
        assert found.device == op.device, f"A v is on {found.device}, not {op.device}"

    def test_the_same_product_twice_has_the_same_bits(self) -> None:
        """Nothing is drawn, and nothing is left behind by a product with another vector."""
        op, (v, w) = self._with_vectors(2)
        first = op.matvec(v)
        op.matvec(w)
        assert torch.equal(first, op.matvec(v)), "A v changed from one call to the next"

    def test_the_vector_is_left_as_it_is(self) -> None:
        """A product does not write into its argument."""
        op, (v,) = self._with_vectors(1)
        before = v.clone()
        op.matvec(v)
        assert torch.equal(v, before), "A v changed v"

    def test_it_is_linear(self) -> None:
        """A (2v − 3w) = 2 A v − 3 A w."""
        op, (v, w) = self._with_vectors(2)
        self._same(op.matvec(2 * v - 3 * w), 2 * op.matvec(v) - 3 * op.matvec(w), "A is not linear")

    def test_it_is_symmetric(self) -> None:
        """⟨w, A v⟩ = ⟨A w, v⟩, which Lanczos takes for granted."""
        op, (v, w) = self._with_vectors(2)
        Av, Aw = op.matvec(v).double(), op.matvec(w).double()
        left, right = float(w.double() @ Av), float(Aw @ v.double())
        most = self._tol(op) * float(Av.norm() * w.double().norm() + Aw.norm() * v.double().norm())
        assert abs(left - right) <= most, f"A is not symmetric: ⟨w, A v⟩ = {left}, ⟨A w, v⟩ = {right}"

    def test_several_vectors_at_once_are_one_after_the_other(self) -> None:
        """``products``, ``@`` and ``to_scipy`` are the same operator."""
        op, rows = self._with_vectors(3)
        single = torch.stack([op.matvec(v) for v in rows])
        together = torch.stack([product.vector for product in op.products(torch.stack(rows))])
        self._same(together, single, "products() differs from matvec()")
        self._same(op @ torch.stack(rows, dim=1), single.T, "A @ columns differs from matvec()")
        exported = torch.as_tensor(op.to_scipy() @ rows[0].cpu().numpy())
        self._same(exported, single[0].cpu(), "to_scipy() differs from matvec()")

    def test_it_scales_and_is_damped_as_a_matrix(self) -> None:
        """(3 − 2A) v = 3v − 2 A v, in the whole and in each batch's quadratic form."""
        op, (v,) = self._with_vectors(1)
        found, plain = (-2 * op).damped(3).product(v), op.product(v)
        self._same(found.vector, 3 * v - 2 * plain.vector, "3 − 2A")
        if plain.forms is not None and found.forms is not None:
            square = v.double() @ v.double()
            self._same(found.forms, 3 * square - 2 * plain.forms, "the forms of 3 − 2A")

    def test_batches_add_up(self) -> None:
        """vᵀA v = Σ_b (n_b/N)·vᵀA_b v, and the same of inner products with other rows."""
        op, (v, w) = self._with_vectors(2)
        found = op.product(v, onto=w[None])
        if op.weights is None:
            assert found.forms is None, "forms without weights: which batch has how many samples?"
            return
        shares = torch.tensor(op.weights, dtype=torch.float64) / sum(op.weights)
        assert found.forms is not None, "an operator over batches tells each batch's quadratic form"
        assert found.forms.shape == shares.shape, f"{len(found.forms)} forms of {len(shares)} batches"
        self._same(found.forms.cpu() @ shares, v.cpu().double() @ found.vector.cpu().double(), "forms")
        assert found.onto is not None, "an operator over batches tells each batch's inner products"
        self._same(found.onto.cpu()[:, 0] @ shares, w.cpu().double() @ found.vector.cpu().double(), "onto")

    def test_samples_add_up(self) -> None:
        """vᵀA v = (1/N)·Σ_i vᵀA_i v, where the samples' parts can be told."""
        op, (v,) = self._with_vectors(1)
        found = op.sample_forms(v)
        if found is None:
            return
        samples = sum(op.weights or ())
        assert found.shape == (samples,), f"{tuple(found.shape)} forms of {samples} samples"
        self._same(found.mean().cpu(), v.cpu().double() @ op.matvec(v).cpu().double(), "sample_forms()")

    def test_diagonals_of_batches_add_up(self) -> None:
        """z ⊙ A z = Σ_p (n_p/N)·z ⊙ A_p z over parts of the samples, where these can be told."""
        op, (v, w) = self._with_vectors(2)
        probes = torch.stack([v, w]).sign()
        for most in (2, len(op.weights or ())):
            found = op.diagonal_parts(probes, most)
            if found is None:
                return
            counts = torch.tensor(op.weights or (), dtype=torch.float64)
            shares = torch.stack([counts[list(run)].sum() for run in runs(len(counts), most)]) / counts.sum()
            for i, z in enumerate(probes):
                whole = z.cpu().double() * op.matvec(z).cpu().double()
                self._same(shares @ found[i].cpu().double(), whole, "diagonal_parts()")

    def test_the_blocks_are_all_coordinates(self) -> None:
        """Names and lengths of consecutive stretches that sum to n."""
        op = self.operator()
        assert sum(length for _, length in op.blocks) == op.shape[0] == op.shape[1]

    def test_a_vector_of_another_length_is_refused(self) -> None:
        """Broadcasting would hide it."""
        op = self.operator()
        try:
            op.matvec(torch.zeros(op.shape[0] + 1, dtype=op.dtype, device=op.device))
        except UserError:
            return
        raise AssertionError("a vector of n + 1 numbers is taken")

    def test_it_is_its_matrix(self) -> None:
        """A v is the product with the dense matrix, where there is one."""
        op, rows = self._with_vectors(3)
        matrix = self.dense()
        if matrix is not None:
            wanted = torch.stack(rows).double().cpu() @ matrix.double().cpu().T
            found = torch.stack([op.matvec(v) for v in rows]).double().cpu()
            self._same(found, wanted, "A v is not that of the dense matrix")

    def _with_vectors(self, count: int) -> tuple[Operator, tuple[Tensor, ...]]:
        op, generator = self.operator(), torch.Generator().manual_seed(self.seed)
        rows = torch.randn(count, op.shape[0], generator=generator, dtype=torch.float64)
        return op, tuple(rows.to(op.device, op.dtype))

    def _tol(self, op: Operator) -> float:
        return self.tol if self.tol is not None else 1e-9 if op.dtype == torch.float64 else 1e-4

    def _same(self, found: Tensor, wanted: Tensor, law: str) -> None:
        difference = float((found.double() - wanted.double()).norm())
        most = self._tol(self.operator()) * max(float(wanted.double().norm()), 1e-30)
        assert difference <= most, f"{law}: off by {difference:.3g}, where {most:.3g} is rounding"
