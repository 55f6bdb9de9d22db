"""The methods by name, one file per family; other packages add theirs by an entry point.

A package registers a :class:`~fedscope.federated.record.method.Method` in the group ``fedscope.methods``.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.federated.methods.activation_norm import MAN
from fedscope.federated.methods.ascent import FEDASAM, FEDSAM
from fedscope.federated.methods.averaging import FEDAVG
from fedscope.federated.methods.calibration import FEDLC, FEDRS
from fedscope.federated.methods.client_momentum import FEDCM
from fedscope.federated.methods.contrastive import MOON
from fedscope.federated.methods.control import FEDDC, SCAFFOLD
from fedscope.federated.methods.curvature import FEDCURV
from fedscope.federated.methods.decorrelation import FEDDECORR
from fedscope.federated.methods.depth import STOCHDEPTH
from fedscope.federated.methods.distillation import FEDNTD, FEDSOL
from fedscope.federated.methods.dynamic import FEDDYN, FEDSPEED
from fedscope.federated.methods.dynamic_ascent import FEDGLOSS, FEDSMOO, FEDTOGA
from fedscope.federated.methods.extrapolation import FEDEXP
from fedscope.federated.methods.foresight import FEDFOR
from fedscope.federated.methods.global_ascent import FEDGF, FEDLESAM
from fedscope.federated.methods.lipschitz import FEDALIGN
from fedscope.federated.methods.lookahead import FEDACG, FEDNSAM
from fedscope.federated.methods.mixing import MIXUP
from fedscope.federated.methods.normalized import FEDNOVA
from fedscope.federated.methods.personal import FEDBN
from fedscope.federated.methods.proximal import FEDPROX
from fedscope.federated.methods.server_optimizers import FEDADAGRAD, FEDADAM, FEDAVGM, FEDYOGI
from fedscope.federated.methods.subnetworks import GRADAUG
from fedscope.federated.methods.weight_averages import EMA, FEDMOSWA, FEDSWA, SWA
from fedscope.federated.methods.weighted_momentum import FEDWMSAM
from fedscope.federated.record import method
from fedscope.federated.record.method import Method
from fedscope.own import METHODS as GROUP

OURS = (
    FEDAVG, FEDPROX, MOON, MIXUP, STOCHDEPTH, GRADAUG, FEDALIGN,
    FEDSAM, FEDASAM, FEDDYN, FEDDC, FEDSPEED, SCAFFOLD, MAN,
    FEDCURV, FEDBN, FEDFOR,
    FEDAVGM, FEDADAGRAD, FEDADAM, FEDYOGI, FEDNOVA,
    FEDCM, FEDSMOO, FEDLESAM, FEDGLOSS, FEDGF, FEDTOGA, FEDNSAM, FEDWMSAM, FEDSWA, FEDMOSWA, SWA, EMA,
    FEDNTD, FEDSOL, FEDLC, FEDRS, FEDDECORR, FEDEXP, FEDACG,
)  # fmt: skip
METHODS = {record.name: record for record in OURS}
ALIASES = {
    "fedpd": "feddyn",  # with full participation and averaging every round the same iteration
    "fedgamma": "scaffold+fedsam",  # Dai et al. 2023
    "mofedsam": "fedcm+fedsam",  # Qu et al. 2022
    "fedlesam-s": "scaffold+fedlesam",  # Fan et al. 2024
    "fedlesam-d": "feddyn+fedlesam",
}
_TRIED: dict[str, Method] = {}


@cache
def known() -> dict[str, Method | UserError]:
    """Return every method by name, fedscope's own, then those of other installed packages.

    In the place of one that cannot be used stands the reason.
    """
    methods: dict[str, Method | UserError] = dict(METHODS)
    for point in _registered():
        if not _taken(point.name, methods):
            methods[point.name] = _load(point)
    return methods


def set_aside() -> list[UserError]:
    """Return why each record of another package that is not used is set aside."""
    seen: dict[str, object] = dict(METHODS)
    faults = [fault for fault in known().values() if isinstance(fault, UserError)]
    for point in _registered():
        if _taken(point.name, seen):
            faults.append(
                UserError(f"{point.value} registers {point.name!r}, which is taken; uninstall or rename it")
            )
        seen[point.name] = point
    return faults


def foreign(text: str) -> list[str]:
    """Return the methods in ``text``, a sum, that other installed packages bring."""
    if text in _TRIED:
        return []
    return [part for part in text.split("+") if not _taken(part, METHODS) and part not in _TRIED]


@contextmanager
def on_trial(record: Method) -> Iterator[None]:
    """Let ``record`` be the method of its name in this process, whatever is installed under that name."""
    before = _TRIED.get(record.name)
    _TRIED[record.name] = record
    try:
        yield
    finally:
        if before is None:
            del _TRIED[record.name]
        else:
            _TRIED[record.name] = before


def _registered() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _taken(name: str, by: Mapping[str, object]) -> bool:
    return name in by or name in ALIASES


def _load(point: EntryPoint) -> Method | UserError:
    try:
        record = point.load()
    except UserError as error:  # of a field of the record
        return UserError(f"the method {point.name!r} ({point.value}) cannot be used: {error}")
    except Exception as error:  # whatever another package raises
        return UserError(
            f"the method {point.name!r} ({point.value}) cannot be imported: {reason(error, point.module)}"
        )
    if not isinstance(record, Method):
        return UserError(f"the entry point {point.name!r} ({point.value}) is not a fedscope Method")
    if record.name != point.name or not re.fullmatch("[a-z0-9_-]+", record.name):
        return UserError(
            f"{point.value} is called {record.name!r}, its entry point {point.name!r}: both need one name of "
            "lower-case letters, digits, - and _"
        )
    return record


def parse(text: str) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``."""
    if text in _TRIED:
        return _TRIED[text]
    full = "+".join(ALIASES.get(name.strip(), name) for name in text.lower().split("+"))
    names = [name.strip() for name in full.split("+")]
    methods = {**known(), **_TRIED}
    for name in names:
        found = methods.get(name)
        if isinstance(found, UserError):
            raise found
    usable = {name: record for name, record in methods.items() if isinstance(record, Method)}
    return method.parse("+".join(names), usable)
