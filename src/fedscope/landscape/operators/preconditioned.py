"""The preconditioned operator P^(-1/2) A P^(-1/2) of a positive diagonal P, which decides adaptive steps.

Its eigenvalues are those of P⁻¹A. With A the Hessian and P = diag(√s + ε) of Adam's second moments s, the
largest one decides whether a step of Adam with s as it is diverges on a quadratic (Cohen et al. 2022,
"Adaptive gradient methods at the edge of stability", section 2).
"""

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.projections import Conjugated


class Preconditioned(Conjugated):
    """P^(-1/2) A P^(-1/2).

    Args:
        base: A, symmetric on n coordinates; where it is a mean over batches, so is this.
        scale: (n,) the diagonal of P, positive and finite.

    Raises:
        UserError: ``scale`` has another shape, or a number that is not positive and finite.
    """

    def __init__(self, base: Operator, scale: Tensor) -> None:
        if scale.shape != (base.shape[0],):
            raise UserError(f"the scale has shape {tuple(scale.shape)}; expected ({base.shape[0]},)")
        if not bool(((scale > 0) & scale.isfinite()).all()):
            raise UserError("a preconditioner is positive and finite: add an ε to its diagonal")
        root = scale.double().rsqrt().to(base.device)  # P^(-1/2), (n,)
        super().__init__(base, lambda v: (root * v.to(torch.float64)).to(base.dtype), float(root.max()))

    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return those of the base with P^(-1/2) v."""
        return self._base.sample_forms(self._image(v.to(self.device, self.dtype)))
