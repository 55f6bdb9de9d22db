"""The methods by name, one file per family."""

from fedscope.federated import method
from fedscope.federated.method import Method
from fedscope.federated.methods.activation_norm import MAN
from fedscope.federated.methods.averaging import FEDAVG
from fedscope.federated.methods.dynamic import FEDDYN
from fedscope.federated.methods.proximal import FEDPROX

METHODS = {record.name: record for record in (FEDAVG, FEDPROX, FEDDYN, MAN)}
ALIASES = {"fedpd": "feddyn"}  # with full participation and averaging every round the same iteration


def parse(text: str) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``.

    Raises:
        UserError: a name is unknown or stands twice, or two methods fill the same place.
    """
    names = [ALIASES.get(name.strip(), name) for name in text.lower().split("+")]
    return method.parse("+".join(names), METHODS)
