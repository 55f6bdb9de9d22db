"""Files that another program wrote, as a run of the registry."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from fedscope.adoption.adopted import Adopted
from fedscope.adoption.identity import Identity
from fedscope.adoption.layouts import Layout, look
from fedscope.checkpoints.file.checkpoint import listed
from fedscope.checkpoints.foreign.reading import read
from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.checkpoints.registry.whose import pairing_in
from fedscope.storage import remove_tree


def add(
    path: Path,
    identity: Identity,
    registry: Registry,
    name: str,
    *,
    known: Mapping[str, object] | None = None,
    round: int | None = None,
    clients: Sequence[Path] | Mapping[int, Path] = (),
    entry: str = "",
) -> tuple[Run, tuple[str, ...]]:
    """Register the checkpoints at ``path``; return the run, what was renamed or left out, and who is who.

    Args:
        path: a file, or a folder of a layout that :mod:`fedscope.adoption.layouts` knows.
        identity: network and data.
        registry: where to.
        name: of the run.
        known: see :class:`Adopted`.
        round: that the newest global model is of, where its file does not say; else 0.
        clients: the clients' files where they are not beside it, as :func:`look` takes them.
        entry: see :func:`fedscope.checkpoints.foreign.fitting.fit`.

    Raises:
        UserError: a file cannot be read or does not fit the network; nothing is registered then.
    """
    layout = look(path, clients)
    newest = layout.round if round is None else round
    spec, fitted = identity.fitted(read(layout.final), str(layout.final), entry)
    identity = replace(identity, variants=tuple(v for v in identity.variants if v[0] == spec))
    notes = (*fitted.notes, *_broken(fitted.state))
    values = dict(known or {})
    if newest:
        values.setdefault("rounds", newest)
    if count := _count(layout):
        values.setdefault("clients", count)
    adopted = Adopted(
        registry, name, spec, identity, source=f"{path}: {layout.title}",
        known=values, notes=notes,
    )  # fmt: skip
    try:
        for client, file, origin, tensors in layout.uploads():
            state = identity.fitted(tensors, f"{file} (client {client})", entry)[1].state
            adopted.upload(client, state, newest or 0, told=layout.told, origin=origin)
        for earlier, file in layout.kept.items():
            adopted.after_round(_state(identity, file, entry), earlier)
        for mean, file in layout.averages.items():
            adopted.average(mean, _state(identity, file, entry), newest or 0)
        adopted.final(fitted.state, newest or 0)
    except BaseException:
        remove_tree(adopted.run.folder, below=registry.root)
        raise
    pairing = pairing_in(adopted.run)
    return adopted.run, (*identity.notes, *notes, *(pairing.lines if pairing else ()))


def _broken(state: Mapping[str, Tensor]) -> Iterator[str]:
    names = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if names:
        yield f"the weights are not finite ({listed(names, 3)}): nothing can be measured at them"


def _count(layout: Layout) -> int:
    """Return how many clients there are; 0 where that is not known, as of some of them."""
    if layout.rows:
        return len(layout.table())
    return len(layout.clients) if layout.clients.keys() == {*range(len(layout.clients))} else 0


def _state(identity: Identity, file: Path, entry: str) -> dict[str, Tensor]:
    return identity.fitted(read(file), str(file), entry)[1].state
