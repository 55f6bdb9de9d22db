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
    if set(tensors) == {""}:
        return _cut(tensors[""], wanted, what)
    arrays = _list(tensors, entry)
    if arrays is None or not set(wanted).isdisjoint(tensors):
        return None
    return _in_order(arrays, wanted, what)


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


def _in_order(arrays: list[Tensor], wanted: Mapping[str, Tensor], what: str) -> tuple[dict[str, Tensor], str]:
    """Name the arrays in the first order of the network's tensors that has as many, of the same shapes."""
    own = _parameters(wanted)
    counted = [name for name in wanted if not counts_batches(name)]
    orders = {"state_dict()": list(wanted), "state_dict(), without what counts batches": counted}
    kept = [name for name in counted if not isinstance(wanted[name], nn.Parameter)]
    faults = list[str]()
    if not kept:
        orders["parameters()"] = list(own.values())
    elif len(arrays) == len(own):
        faults.append(f"it is as long as parameters(), which lack its {listed(kept)}; save its state_dict()")
    for order, names in orders.items():
        if len(names) != len(arrays):
            continue
        odd = [
            f"array {place} is {tuple(array.shape)}, {name} {tuple(wanted[name].shape)}"
            for place, (array, name) in enumerate(zip(arrays, names, strict=True))
            if array.shape != wanted[name].shape
        ]
        if not odd:
            note = f"named {len(arrays)} arrays in the order of the network's {order}"
            return _completed(dict(zip(names, arrays, strict=True)), wanted, own), note
        faults.append(f"in the order of {order} {listed(odd, 3)}")
    explained = "; ".join(faults) or f"the network has {len(wanted)} tensors, {len(own)} of them parameters"
    raise UserError(f"{what} is a list of {len(arrays)} arrays that does not fit the network: {explained}")


def _completed(
    state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], own: Mapping[int, str]
) -> dict[str, Tensor]:
    """Add the other names of shared parameters, and zeros for what counts batches."""

    def of(name: str) -> Tensor:
        tensor = wanted[name]
        found = state.get(name, state.get(own.get(id(tensor), name)))
        return torch.zeros(tensor.shape, dtype=tensor.dtype) if found is None else found

    return {name: of(name) for name in wanted}


def _parameters(wanted: Mapping[str, Tensor]) -> dict[int, str]:
    names = dict[int, str]()
    for name, tensor in wanted.items():
        if isinstance(tensor, nn.Parameter):
            names.setdefault(id(tensor), name)
    return names


def _cut(vector: Tensor, wanted: Mapping[str, Tensor], what: str) -> tuple[dict[str, Tensor], str]:
    own = _parameters(wanted)
    kept = [name for name, tensor in wanted.items() if not isinstance(tensor, nn.Parameter)]
    count = sum(wanted[name].numel() for name in own.values())
    whole = vector.shape == (sum(tensor.numel() for tensor in wanted.values()),)
    if not is_dense(vector) or not (whole or vector.shape == (count,)):
        raise UserError(f"{what} is an array {tuple(vector.shape)}; the network has {count} parameters")
    if kept and not whole:
        raise UserError(
            f"{what} is a flat vector, which lacks the network's {listed(kept)}; take a state_dict"
        )
    names = list(wanted) if whole else list(own.values())
    pieces = vector.split([wanted[name].numel() for name in names])
    state = {name: piece.view(wanted[name].shape) for name, piece in zip(names, pieces, strict=True)}
    note = f"cut one vector of {len(vector)} numbers into {len(names)} tensors, in the network's order"
    return _completed(state, wanted, own), note
