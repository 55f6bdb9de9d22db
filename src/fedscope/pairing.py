"""The pairing of clients and models: which file, node or user is which number, and which are equal."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from fedscope.choices import Told
from fedscope.validation import Plain

HOW: Mapping[Told, str] = {
    "run": "as the run numbered them",
    "name": "by the number in the file's name",
    "option": "by --client K=FILE",
    "row": "by the row of the array",
    "partition-id": "by partition-id in the replies' metrics",
    "user": "by the user's id",
    "loop": "as the training loop numbered them",
    "files": "in the order of the files",
    "nodes": "in the order in which Flower's nodes appeared",
    "users": "in the order in which pfl's users appeared",
}
_AFTER = "name the models with `fedscope runs add FILE --client K=FILE`"
MENDS: Mapping[Told, str] = {
    "files": _AFTER,
    "nodes": f"let each client's reply have its partition-id in its metrics, or {_AFTER}",
    "users": f"give pfl's users the numbers of their data, from 0, as ids, or {_AFTER}",
}
"""Orders of appearance, which do not say whose a model is, and what would."""
MOST = 6  # clients that a line names
Clients = Annotated[tuple[int, ...], Field(strict=False)]


class Pairing(Plain):
    """Which client each model is of, and how that was told."""

    told: Told  # how, of all; where it differs, as of the one that is told worst
    numbers: Clients  # of the clients, ascending
    # file, node, user or row of each; none of a run that fedscope trained
    sources: Annotated[tuple[str, ...], Field(strict=False)] = ()
    # groups whose models are the same, and not the global model
    equal: Annotated[tuple[Clients, ...], Field(strict=False)] = ()
    as_global: Clients = ()  # clients whose model is the global model

    @classmethod
    def of(cls, whose: Mapping[int, tuple[Told, str]], hashes: Mapping[int, str], sha256: str) -> "Pairing":
        """Return the pairing of clients; ``whose`` has how each was told, and its source."""
        same: dict[str, list[int]] = {}
        for client, found in sorted(hashes.items()):
            same.setdefault(found, []).append(client)
        as_global = same.pop(sha256, [])
        sources = [source for _, (_, source) in sorted(whose.items())]
        content = {
            "told": worst(told for told, _ in whose.values()),
            "numbers": sorted(whose),
            "sources": sources if any(sources) else [],
            "equal": [clients for clients in same.values() if len(clients) > 1],
            "as_global": as_global,
        }
        return cls.read(content)

    @property
    def lines(self) -> list[str]:
        sources = [f" is {source}" for source in self.sources] or [""] * len(self.numbers)
        found = [f"{_clients(map('{}{}'.format, self.numbers, sources))}: {numbered(self.told)}"]
        alike = [f"{_clients(group)} have equal models" for group in self.equal]
        if self.as_global:
            alike.append(f"the global model is that of {_clients(self.as_global)}")
        return [*found, "; ".join(alike)] if alike else found


def numbered(told: Told) -> str:
    mend = MENDS.get(told)
    return f"numbered {HOW[told]}" + (f", which does not say whose data are whose; {mend}" if mend else "")


def worst(told: Iterable[Told]) -> Told:
    """Return an order of appearance if there is one, else how the first was told."""
    found = list(told)
    return next((one for one in found if one in MENDS), found[0])


def _clients(names: Iterable[object]) -> str:
    every = list(map(str, names))
    shown = every if len(every) <= MOST else [*every[: MOST - 1], "…", every[-1]]
    return f"client{'s' * (len(every) > 1)} {', '.join(shown)}"
