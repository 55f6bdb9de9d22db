"""FedLC and FedRS: the cross-entropy sees logits that know which classes a client has.

FedLC: f_c − τ n_c^{−1/4}, n_c the client's rows of class c; a class that it does not have is left out (−∞),
as in the public programs, whose sum has all classes c where the paper's has c ≠ y. τ = 0 leaves the logits,
of all classes, as they are. FedRS: α f_c for the classes that the client does not have, f_c for the others;
its authors' program has (α + (1 − α) n_c/max n) f_c, and no bias.
Both act in training alone; the network's own logits are what terms, and the reported training loss, see.
"""

import torch
from torch import Tensor

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values


def margins(logits: Tensor, counts: Tensor, options: Values) -> Tensor:
    """Return f_c − τ n_c^{−1/4}, (B, C)."""
    tau = float(options["lc.tau"])
    return logits - tau * counts.pow(-0.25) if tau else logits


def restricted(logits: Tensor, counts: Tensor, options: Values) -> Tensor:
    """Return f_c, or α f_c of a class that the client does not have, (B, C)."""
    return torch.where(counts > 0, logits, float(options["rs.alpha"]) * logits)


FEDLC = Method(
    name="fedlc",
    objective="cross-entropy of f_c − τ n_c^{−1/4}",
    source="Zhang et al. 2022 (ICML, arXiv 2209.00189); FedDecorr's and FedACG's programs",
    place="in the logits that the cross-entropy sees",
    options=(Option("lc.tau", 1.0, "strength τ (FedACG's program: 1, FedDecorr's: 0.1)"),),
    label_counts=True,
    logits=(margins,),
)
FEDRS = Method(
    name="fedrs",
    objective="cross-entropy of f_c, of α f_c where the client has no row of class c",
    source="Li, Zhan 2021 (KDD); FedDecorr's program",
    place="in the logits that the cross-entropy sees",
    options=(Option("rs.alpha", 0.5, "factor α; 1: FedAvg (FedDecorr's program: 0.5)", within=(0.0, 1.0)),),
    label_counts=True,
    logits=(restricted,),
)
