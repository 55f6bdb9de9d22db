"""Weights without names: one vector, or a list of arrays, in the network's order.

FedDyn's, FL-Simulator's and FedLab's code keep a vector of all parameters, BlazeFL's one of the
whole state; Flower's ``get_parameters`` is a list of arrays. The order is that of ``state_dict()``, with or
without what only counts batches, or of ``parameters()``.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.checkpoint import is_dense, listed
from fedscope.errors import UserError

_PLACE = re.compile(r"(?:(?P<list>.*)\.)?(?:arr_)?(?P<place>[0-9]{1,7})")


def counts_batches(name: str) -> bool:
    """Say whether a tensor only counts batches: old files do not have it, and it is not used here."""
    return name.endswith("num_batches_tracked")


def without_names(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str, entry: str = ""
) -> tuple[dict[str, Tensor], str] | None:
    """Return the network's state and a sentence on it, or None where the tensors have names.

    Tensors are one vector under the name ``""``; or a list, below ``entry``, whose names end in ``0``, ``1``,
    … or ``arr_0``, ``arr_1``, …. ``wanted`` is ``network.state_dict(keep_vars=True)``.
    """
    own: dict[int, str] = {}  # parameters, those that are shared once
    for name, tensor in wanted.items():
        if isinstance(tensor, nn.Parameter):
            own.setdefault(id(tensor), name)
    counted = [name for name in wanted if not counts_batches(name)]
    kept = [name for name in counted if not isinstance(wanted[name], nn.Parameter)]
    orders = {
        "state_dict()": list(wanted),
        "state_dict(), without what counts batches": counted,
        "parameters()": list(own.values()),
    }
    if set(tensors) == {""}:
        vector = tensors[""]
        arrays = _cut(vector, wanted, [orders["state_dict()"], orders["parameters()"]])
        if arrays is None:
            count = sum(wanted[name].numel() for name in own.values())
            raise UserError(f"{what} is an array {tuple(vector.shape)}; the network has {count} parameters")
        form, note = "a flat vector", f"cut one vector of {len(vector)} numbers into {len(arrays)} tensors, "
    else:
        arrays = _list(tensors, entry)
        if arrays is None or not set(wanted).isdisjoint(tensors):
            return None
        form, note = f"a list of {len(arrays)} arrays", f"named {len(arrays)} arrays "
    faults = list[str]()
    for order, names in orders.items():
        if len(names) != len(arrays):
            continue
        odd = [
            f"array {place} is {tuple(array.shape)}, {name} {tuple(wanted[name].shape)}"
            for place, (array, name) in enumerate(zip(arrays, names, strict=True))
            if array.shape != wanted[name].shape
        ]
        if names == orders["parameters()"] and kept:
            faults.append(f"it is as long as {order}, and lacks its {listed(kept)}; save its state_dict()")
        elif odd:
            faults.append(f"in the order of {order} {listed(odd, 3)}")
        else:
            found = dict(zip(names, arrays, strict=True))
            return _completed(found, wanted, own), f"{note}in the order of the network's {order}"
    explained = "; ".join(faults) or f"the network has {len(wanted)} tensors, {len(own)} of them parameters"
    raise UserError(f"{what} is {form} that does not fit the network: {explained}")


def _list(tensors: Mapping[str, Tensor], entry: str) -> list[Tensor] | None:
    """Return the tensors of the list at ``entry``; without it, of the only one, if there is nothing else."""
    matches = {name: match for name in tensors if (match := _PLACE.fullmatch(name))}
    below = {name: match["list"] or "" for name, match in matches.items()}
    if not entry:
        if len(matches) < len(tensors) or len(set(below.values())) != 1:
            return None
        entry = next(iter(below.values()))
    places = {int(matches[name]["place"]): tensors[name] for name in below if below[name] == entry}
    if not places or places.keys() != {*range(len(places))}:
        return None
    return [places[place] for place in range(len(places))]


def _cut(vector: Tensor, wanted: Mapping[str, Tensor], orders: list[list[str]]) -> list[Tensor] | None:
    """Return a vector's pieces in the first order that has as many numbers; None: there is none."""
    for names in orders:
        sizes = [wanted[name].numel() for name in names]
        if is_dense(vector) and vector.shape == (sum(sizes),):
            pieces = zip(names, vector.split(sizes), strict=True)
            return [piece.view(wanted[name].shape) for name, piece in pieces]
    return None


def _completed(
    state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], own: Mapping[int, str]
) -> dict[str, Tensor]:
    """Add the other names of shared parameters, and zeros for what counts batches."""

    def of(name: str) -> Tensor:
        tensor = wanted[name]
        found = state.get(name, state.get(own.get(id(tensor), name)))
        return torch.zeros(tensor.shape, dtype=tensor.dtype) if found is None else found

    return {name: of(name) for name in wanted}
