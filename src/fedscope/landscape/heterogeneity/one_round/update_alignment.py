"""How a client's update Δ_k = w_k − w_start lies to the curvature: Rayleigh quotient and share on top.

The curvature along the update is ΔᵀHΔ/‖Δ‖², between the least eigenvalue and λ_max; a random direction has
tr H/n. The share ‖P_kΔ‖²/‖Δ‖² is how much of its squared length lies in the space of the k largest
eigenvectors (Gur-Ari, Roberts and Dyer 2018, section 2, for gradients); a random direction has k/n.
"""

from dataclasses import dataclass

from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.one_round.eigenspaces import Eigenspace, captured
from fedscope.landscape.heterogeneity.one_round.paired import Paired, mean_of_batches
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.printing import Printed


@dataclass(frozen=True, repr=False)
class Alignment(Printed):
    """One update and one Hessian."""

    length: float  # ‖Δ‖
    rayleigh: Paired  # ΔᵀHΔ/‖Δ‖²
    share: Paired | None  # ‖P_kΔ‖²/‖Δ‖²; None without an eigenspace
    k: int
    random: float  # the share k/n of a random direction
    matvecs: int


def update_alignment(op: Operator, space: Eigenspace | None, update: Tensor, *, samples: str) -> Alignment:
    wide = update.to(op.device).double()
    length = float(wide.norm())
    if not 0 < length < float("inf"):
        raise UserError(f"an update of length {length:g} has no direction: the client did not move")
    unit = (wide / length).to(op.dtype)
    product = op.product(unit)
    value = float(unit.double() @ product.vector.double())
    known = product.forms is not None
    forms = product.forms if product.forms is not None else product.vector.new_tensor([value])
    rayleigh = mean_of_batches(op, samples, forms, value) if known else Paired(value, {})
    share, spent = None, 1
    if space:
        (share,), products = captured(op, space, unit[None])
        spent += products
    k = space.k if space else 0
    return Alignment(length, rayleigh, share, k, k / op.shape[0], spent)
