"""The methods by name, one file per family; other packages add theirs by an entry point.

A package registers a :class:`~fedscope.federated.record.method.Method` in the group ``fedscope.methods``.
"""

import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fedscope.errors import UserError
from fedscope.federated.methods.activation_norm import MAN
from fedscope.federated.methods.ascent import FEDASAM, FEDSAM
from fedscope.federated.methods.averaging import FEDAVG
from fedscope.federated.methods.contrastive import MOON
from fedscope.federated.methods.control import FEDDC, SCAFFOLD
from fedscope.federated.methods.curvature import FEDCURV
from fedscope.federated.methods.depth import STOCHDEPTH
from fedscope.federated.methods.dynamic import FEDDYN, FEDSPEED
from fedscope.federated.methods.foresight import FEDFOR
from fedscope.federated.methods.lipschitz import FEDALIGN
from fedscope.federated.methods.mixing import MIXUP
from fedscope.federated.methods.normalized import FEDNOVA
from fedscope.federated.methods.personal import FEDBN
from fedscope.federated.methods.proximal import FEDPROX
from fedscope.federated.methods.server_optimizers import FEDADAGRAD, FEDADAM, FEDAVGM, FEDYOGI
from fedscope.federated.methods.subnetworks import GRADAUG
from fedscope.federated.record import method
from fedscope.federated.record.method import Method

OURS = (
    FEDAVG, FEDPROX, MOON, MIXUP, STOCHDEPTH, GRADAUG, FEDALIGN,
    FEDSAM, FEDASAM, FEDDYN, FEDDC, FEDSPEED, SCAFFOLD, MAN,
    FEDCURV, FEDBN, FEDFOR,
    FEDAVGM, FEDADAGRAD, FEDADAM, FEDYOGI, FEDNOVA,
)  # fmt: skip
METHODS = {record.name: record for record in OURS}
ALIASES = {
    "fedpd": "feddyn",  # with full participation and averaging every round the same iteration
    "fedgamma": "scaffold+fedsam",  # Dai et al. 2023
}
GROUP = "fedscope.methods"


@cache
def known() -> dict[str, Method | UserError]:
    """Return every method by name, fedscope's own, then those of other installed packages.

    In the place of one that cannot be used stands the reason.
    """
    methods: dict[str, Method | UserError] = dict(METHODS)
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in methods or point.name in ALIASES:
            raise UserError(f"{point.value} registers {point.name!r}, which is taken; uninstall or rename it")
        methods[point.name] = _load(point)
    return methods


def _load(point: EntryPoint) -> Method | UserError:
    try:
        record = point.load()
    except Exception as error:
        return UserError(f"the method {point.name!r} ({point.value}) cannot be imported: {error}")
    if not isinstance(record, Method):
        return UserError(f"the entry point {point.name!r} ({point.value}) is not a fedscope Method")
    if record.name != point.name or not re.fullmatch("[a-z0-9_-]+", record.name):
        return UserError(
            f"{point.value} is called {record.name!r}, its entry point {point.name!r}: both need one name of "
            "lower-case letters, digits, - and _"
        )
    return record


def parse(text: str) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``.

    Raises:
        UserError: a name is unknown or stands twice, or two methods do not go together.
    """
    full = "+".join(ALIASES.get(name.strip(), name) for name in text.lower().split("+"))
    names = [name.strip() for name in full.split("+")]
    methods = known()
    for name in names:
        found = methods.get(name)
        if isinstance(found, UserError):
            raise found
    if isinstance(whole := methods.get("+".join(names)), Method):  # a sum on trial
        return whole
    usable = {name: record for name, record in methods.items() if isinstance(record, Method)}
    return method.parse("+".join(names), usable)
