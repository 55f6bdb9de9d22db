"""The families of methods: one module of this package each, whose docstring has the equations."""

from importlib import import_module
from types import ModuleType

from fedscope.federated.methods import METHODS
from fedscope.federated.record.method import Method

# module → the family that it holds
FAMILIES = {
    "averaging": "Averaging",
    "proximal": "Proximity to the global model",
    "dynamic": "Dynamic regularisation",
    "control": "Control variates",
    "contrastive": "Contrast with the global model",
    "distillation": "Knowledge of the global model",
    "calibration": "Logits that know the classes",
    "decorrelation": "Decorrelated features",
    "curvature": "Penalties weighted by the Fisher diagonal",
    "foresight": "Penalties weighted by a global gradient",
    "ascent": "Sharpness-aware steps",
    "global_ascent": "Sharpness-aware steps along the global path",
    "dynamic_ascent": "Sharpness-aware steps with dynamic regularisation",
    "client_momentum": "Momentum of the clients",
    "weighted_momentum": "Momentum and sharpness-aware steps",
    "activation_norm": "Flatness by small activations",
    "lipschitz": "Flatness by a small Lipschitz constant",
    "weight_averages": "Averages of weights",
    "subnetworks": "Trained sub-networks",
    "depth": "Stochastic depth",
    "mixing": "Mixed samples",
    "personal": "Personal tensors",
    "lookahead": "Momentum that the server sends ahead",
    "extrapolation": "Extrapolation on the server",
    "server_optimizers": "Optimizers on the server",
    "normalized": "Normalised averaging",
}


def module(method: Method) -> ModuleType:
    """Return the module that defines one of fedscope's methods."""
    for name in FAMILIES:
        found = import_module(f"fedscope.federated.methods.{name}")
        if any(one is method for one in vars(found).values()):
            return found
    raise KeyError(method.name)


def family(method: Method) -> str:
    """Return the family of a method, of a sum those of its parts; nothing for another package's."""
    parts = [METHODS[name] for name in method.name.split("+") if name in METHODS]
    titles = [FAMILIES[module(part).__name__.rpartition(".")[2]] for part in parts]
    return "; ".join(dict.fromkeys(titles))
