"""Which tensors of a foreign checkpoint are a network's: found by name and shape, with every renaming noted.

A network wants tensors of certain names. They may lie below a prefix (``state_dict.model.``), wrapped
(``module.``, ``_orig_mod.``) and under another program's names
(:mod:`fedscope.checkpoints.foreign.dialects`). A set of tensors is taken only if it is exactly the
network's, and only if it is the only one; anything else is an error that names what was found.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import is_dense, listed
from fedscope.checkpoints.foreign.dialects import translations
from fedscope.checkpoints.foreign.unnamed import counts_batches, without_names
from fedscope.choices import BatchNormMode
from fedscope.errors import UserError

_KINDS = (  # how its place reads, what that is; of several the first is suggested
    (r"(?:model_|net_)?state_dict(?:\..*)?", "the program's network"),
    (r"(?:modopt\.)?(?:model|net|network|module|server|weights|params|global_model)(?:\..*)?", "the network"),
    (r"personali[sz]ed_.*", "the client's own network"),
    (r"current_model_state.*", "the network beside its average"),
    (r".*(?:^|[._])(?:ema|swa|averaged?|average_model)(?:[._].*)?", "an average"),
    (r".*(?:best|optimal).*", "the best until then"),
    (r"callbacks\..*", "a callback's copy"),
    (r".*", "another"),
)


def described(places: Collection[str]) -> tuple[list[str], str]:
    ranks = {
        place: next(n for n, (form, _) in enumerate(_KINDS) if re.fullmatch(form, place)) for place in places
    }
    order = sorted(places, key=lambda place: (ranks[place], place))
    averaged = any(
        place.startswith("current_model_state") for place in places
    )  # as Lightning's callback leaves them
    said = {place: _KINDS[rank][1] for place, rank in ranks.items()}
    said |= {place: "the average" for place in places if averaged and place.startswith("state_dict")}
    return order, ", ".join(f"{place} ({said[place]})" for place in order)


WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of BatchNorm, the ends of their names
COUNTERS = ("n_averaged", "total_ops", "total_params")  # of torch's AveragedModel, and of thop


@dataclass(frozen=True)
class Fitted:
    """A network's state under its own names, and a sentence for every change that led to it."""

    state: dict[str, Tensor]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """A place in the file, and the network's names (here: there, below the prefix) in one dialect."""

    prefix: str
    dialect: str
    names: Mapping[str, str]


def fit(
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    what: str,
    *,
    entry: str = "",
    flag: str = "--entry",
    statistics: Collection[str] = (),
    bn: BatchNormMode = "eval",
) -> Fitted:
    """Return the network's state from ``tensors``.

    Args:
        tensors: by dotted name, as :func:`fedscope.checkpoints.foreign.tensor_files.read` returns them; or
            without names (:mod:`fedscope.checkpoints.foreign.unnamed`).
        wanted: ``network.state_dict(keep_vars=True)``; only names, shapes and which are shared count.
        what: the file, for messages.
        entry: take what lies below this name only.
        flag: the option that gives it, for messages.
        statistics: names of BatchNorm's statistics, which may lack unless ``bn`` is ``eval``; those of a new
            layer are in their place then.
        bn: how BatchNorm is to be measured.
    """
    try:
        return _found(tensors, wanted, what, entry, flag)
    except UserError as error:
        needed = {name: tensor for name, tensor in wanted.items() if name not in statistics}
        try:
            found = _found(tensors, needed, what, entry, flag)
        except UserError:
            raise error from None
        if bn == "eval":
            mend = "or take --bn recalibrate, bn='recalibrate', which estimates them anew"
            raise UserError(f"{error}; {mend}") from None
    new = {name: torch.zeros(wanted[name].shape, dtype=wanted[name].dtype) for name in wanted.keys() - needed}
    state = new | {name: t + 1 for name, t in new.items() if name.endswith("running_var")} | found.state
    return Fitted(
        {name: state[name] for name in wanted},
        (*found.notes, f"no statistics of BatchNorm are there, and --bn {bn} reads none"),
    )


def _found(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str, entry: str, flag: str
) -> Fitted:
    if (unnamed := without_names(tensors, wanted, what, entry)) is not None:
        found = Fitted(unnamed[0], (unnamed[1],))
    else:
        found = _FileSearch(tensors, wanted, what, entry).fitted(flag)
    for name, tensor in found.state.items():
        if not is_dense(tensor):
            raise UserError(f"{what}: {name[:80]!a} is no dense tensor in memory; save a plain state_dict")
    return found


class _FileSearch:
    """The tensors of one file, by their names without wrappers, and the network looked for in them."""

    def __init__(
        self, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str, entry: str
    ) -> None:
        self.tensors, self.wanted, self.what = tensors, wanted, what
        self.twins: dict[
            int, list[str]
        ] = {}  # names of one and the same tensor, which a saver may write once
        for name, tensor in wanted.items():
            self.twins.setdefault(id(tensor), []).append(name)
        self.names, self.notes = self._unwrapped(entry)

    def fitted(self, flag: str) -> Fitted:
        needed = sum(not counts_batches(names[0]) for names in self.twins.values())
        best: tuple[int, _Candidate] | None = None
        for places in self._places():
            found = [place for votes, place in places if votes >= needed and not self._faults(place)]
            if len(found) == 1:
                return self._taken(found[0])
            if found:
                order, said = described([place.prefix for place in found])
                raise UserError(
                    f"{self.what} holds the network's tensors {len(order)} times, below {said}; "
                    f"choose one with {flag}, such as {flag} {order[0]}"
                )
            best = max((place for place in (best, *places) if place), key=itemgetter(0), default=None)
        raise UserError(f"{self.what} does not fit the network: {self._explanation(best)}")

    def _unwrapped(self, entry: str) -> tuple[dict[str, str], list[str]]:
        """Return {name without wrappers: name in the file}, and notes on the wrappers."""
        own = {part for name in self.wanted for part in name.split(".")}
        counts, plain = Counter[str](), dict[str, str]()
        for name in self.tensors:
            parts = name.split(".")
            wrappers = [part for part in parts if part in WRAPPERS and part not in own]
            bare = ".".join(part for part in parts if part not in wrappers)
            if entry and not (name.startswith(f"{entry}.") or bare.startswith(f"{entry}.")):
                continue
            counts.update(set(wrappers))
            if bare in plain:
                raise UserError(
                    f"{self.what} holds {bare} twice, as {plain[bare]} and {name}; save one state_dict"
                )
            plain[bare] = name
        if not plain:
            raise UserError(
                f"{self.what} holds nothing below {entry!r}; it has {listed(list(self.tensors), 6)}"
            )
        return plain, [f"removed {wrapper}. from {count} names" for wrapper, count in sorted(counts.items())]

    def _places(self) -> Iterator[list[tuple[int, _Candidate]]]:
        prefixes: dict[str, list[str]] = {}
        for name in self.names:
            parts = name.split(".")
            for cut in range(len(parts)):
                prefixes.setdefault(".".join(parts[cut:]), []).append(".".join(parts[:cut]))
        for dialect, there in translations(self.wanted):
            votes = Counter(prefix for name in there.values() for prefix in prefixes.get(name, ()))
            yield [(count, _Candidate(prefix, dialect, there)) for prefix, count in votes.items()]

    def _inside(self, place: _Candidate) -> dict[str, str]:
        start = f"{place.prefix}." if place.prefix else ""
        return {bare.removeprefix(start): name for bare, name in self.names.items() if bare.startswith(start)}

    def _source(self, name: str, place: _Candidate, inside: Mapping[str, str]) -> str | None:
        """Return which tensor of the file the network's ``name`` is; under a twin's name if need be."""
        for own in (name, *self.twins[id(self.wanted[name])]):
            if place.names[own] in inside:
                return inside[place.names[own]]
        return None

    def _faults(self, place: _Candidate) -> list[str]:
        inside, faults = self._inside(place), list[str]()
        sources = {name: self._source(name, place, inside) for name in self.wanted}
        missing = [
            place.names[n] for n, source in sources.items() if source is None and not counts_batches(n)
        ]
        averages = {
            f"ema_{name.replace('.', '_')}" for name in place.names.values()
        }  # as MMEngine's hook names them
        known = {*place.names.values(), *averages}
        unknown = sorted(name for name in inside.keys() - known if name.rpartition(".")[2] not in COUNTERS)
        if missing:
            faults.append(f"it lacks {len(missing)} of {len(self.wanted)} tensors ({listed(missing)})")
        if unknown:
            faults.append(f"it holds {len(unknown)} that the network has not ({listed(unknown)})")
        shapes = {
            n: (self.tensors[s].shape, self.wanted[n].shape) for n, s in sources.items() if s is not None
        }
        odd = [
            f"{n} is {tuple(there)}, not {tuple(here)}"
            for n, (there, here) in shapes.items()
            if there != here
        ]
        return [*faults, *([f"of another shape: {listed(odd)}"] if odd else [])]

    def _explanation(self, best: tuple[int, _Candidate] | None) -> str:
        if best is None:
            there, here = listed(list(self.names)), listed(list(self.wanted))
            return f"it names its tensors {there}, the network {here}; name the network it was saved from"
        where = f" (looked for below {best[1].prefix})" if best[1].prefix else ""
        return "; ".join(self._faults(best[1])) + where

    def _taken(self, place: _Candidate) -> Fitted:
        inside, told = self._inside(place), self.notes
        state, used, zero = dict[str, Tensor](), set[str](), list[str]()
        for name, tensor in self.wanted.items():
            source = self._source(name, place, inside)
            if source is None:
                state[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
                zero.append(name)
                continue
            state[name] = self.tensors[source]
            used.add(source)
            if place.names[name] not in inside:
                told.append(f"{name} shares the weights of {source}")
        if place.prefix:
            told.append(f"removed the prefix {place.prefix}. from {len(inside)} names")
        renamed = [(there, here) for here, there in place.names.items() if there != here and there in inside]
        if renamed:
            told.append(f"renamed {len(renamed)} names ({place.dialect}): {' to '.join(renamed[0])}, …")
        if zero:
            told.append(f"set to 0 what counts batches only and is lacking: {listed(zero)}")
        left = [name for name in self.tensors if name not in used]
        if left:
            told.append(f"left out {len(left)} other tensors: {listed(left)}")
        return Fitted(state, tuple(told))
