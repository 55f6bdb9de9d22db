"""FedBN: BatchNorm stays with the client.

The affine parameters and running statistics of BatchNorm are never sent; the rest is the uniform mean. A
backbone for other methods: their terms, memories and server rules act on the shared parameters only
(``fedbn.reg_scope=all``: the terms see all). Whoever has no BatchNorm of its own, as the model that is
evaluated and kept or a client in its first round, has the mean of the last participants'. The published code
finds BatchNorm by the letters bn in its name, which misses those in shortcuts: ``fedbn.match=name`` takes
names with bn, and where layers are numbered all but those in shortcuts.
"""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.vectors import Vector


def batchnorm(model: nn.Module, options: Values) -> list[str]:
    """Return the names of the tensors of BatchNorm."""
    owners = {name for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if options["fedbn.match"] == "name":
        named = {name for name in owners if "bn" in name}
        owners = named or {name for name in owners if "shortcut" not in name}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, _ in tensors if name.rpartition(".")[0] in owners]


FEDBN = Method(
    name="fedbn",
    objective="ℓ(w), w = shared parameters and the client's own BatchNorm",
    source="Li et al. 2021 (ICLR), Algorithm 1",
    place="what is averaged; the local step is its host's",
    options=(
        Option(
            "fedbn.match", "type", "find BatchNorm by type, or by the letters bn",
            code="name", choices=("type", "name"),
        ),
        Option("fedbn.reg_scope", "shared", "what its host's terms see", choices=("shared", "all")),
    ),
    personal=batchnorm,
    terms_see_personal=lambda options: options["fedbn.reg_scope"] == "all",
    memory=(Vector("personal", "personal"),),
    weights="uniform",
    refuses=dict.fromkeys(
        ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "fednova", "fedexp", "fedacg", "fednsam", "fedswa"),
        "BatchNorm that stays with the client has no global value that a server optimizer could step",
    ),
)  # fmt: skip
