"""Files that another program wrote, as a run of the registry."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fedscope.adoption.adopted import Adopted
from fedscope.adoption.identity import Identity
from fedscope.adoption.layouts import RunLayout, look
from fedscope.checkpoints.file.checkpoint import listed
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.registry.whose import pairing_in
from fedscope.choices import BatchNormMode
from fedscope.storage import remove_tree


def add(
    path: Path,
    identity: Identity,
    registry: RunRegistry,
    name: str,
    *,
    known: Mapping[str, object] | None = None,
    round: int | None = None,
    clients: Sequence[Path] | Mapping[int, Path] = (),
    entry: str = "",
    client_entry: str = "",
    bn: BatchNormMode = "eval",
) -> tuple[RunFolder, tuple[str, ...]]:
    """Register the checkpoints at ``path``; return the run, what was renamed or left out, and who is who.

    Args:
        path: a file, or a folder of a layout that :mod:`fedscope.adoption.layouts` knows.
        known: see :class:`Adopted`.
        round: that the newest global model is of, where its file does not say; else 0.
        clients: the clients' files where they are not beside it, as :func:`look` takes them.
        entry: see :func:`fedscope.checkpoints.foreign.fitting.fit`; ``client_entry`` is by default the same.
        bn: ``recalibrate``: BatchNorm's statistics may lack, and every measurement has to estimate them.
    """
    layout = look(path, clients)
    newest = layout.round if round is None else round
    files = _Files(identity, {"--entry": entry, "--client-entry": client_entry or entry}, bn)
    final = files.state(layout.final, read(layout.final))
    values = dict(known or {})
    if newest:
        values.setdefault("rounds", newest)
    if count := _count(layout):
        values.setdefault("clients", count)
    adopted = Adopted(registry, name, files.identity, source=f"{path}: {layout.title}", known=values)
    try:
        for client, file, origin, tensors in layout.uploads():
            state = files.state(file, tensors, client)
            adopted.upload(client, state, newest or 0, told=layout.told, origin=origin)
        for earlier, file in layout.kept.items():
            adopted.save(adopted.run.after_round(earlier), files.state(file, read(file)), earlier)
        for mean, file in layout.averages.items():
            adopted.save(adopted.run.average(mean), files.state(file, read(file)), newest or 0, mean)
        notes = (*files.notes, *layout.notes, *_odd(final))
        adopted.tell(notes)
        adopted.save(adopted.run.final, final, newest or 0)
    except BaseException:
        remove_tree(adopted.run.folder, below=registry.root)
        raise
    pairing = pairing_in(adopted.run)
    return adopted.run, (*identity.notes, *notes, *(pairing.lines if pairing else ()))


@dataclass
class _Files:
    """Reads the run's files, and keeps what was changed in each."""

    identity: Identity
    entries: Mapping[str, str]  # by the options that give them
    bn: BatchNormMode
    names: list[str] = field(default_factory=list)  # the global model's first
    changes: dict[str, list[str]] = field(default_factory=dict)  # note → the files that it is of

    def state(
        self, file: Path, tensors: Mapping[str, Tensor], client: int | None = None
    ) -> dict[str, Tensor]:
        """Return a model's state; the network's variant that the first file fits is that of all."""
        flag, which = ("--entry", "") if client is None else ("--client-entry", f" (client {client})")
        self.identity, fitted = self.identity.fitted(
            tensors, f"{file}{which}", self.entries[flag], flag=flag, bn=self.bn
        )
        self.names.append(file.name if client is None else f"client {client}")
        for note in fitted.notes:
            self.changes.setdefault(note, []).append(self.names[-1])
        return fitted.state

    @property
    def notes(self) -> Iterator[str]:
        every = len(self.names)
        for note, names in self.changes.items():
            which = f"all {every}" if len(names) == every else f"{len(names)} of {every}"
            yield note if names == self.names[:1] else f"{note} (in {which} files: {listed(names)})"


def _odd(state: Mapping[str, Tensor]) -> Iterator[str]:
    names = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if names:
        yield f"the weights are not finite ({listed(names, 3)}): nothing can be measured at them"
    new = [
        name
        for name, mean in state.items()
        if name.endswith("running_mean")
        and not mean.any()
        and bool((state.get(name.replace("running_mean", "running_var"), mean) == 1).all())
    ]
    if new:
        yield (
            f"BatchNorm never saw a sample ({listed(new, 3)}: mean 0, variance 1): measure with "
            "--bn recalibrate, which estimates the statistics on the samples"
        )


def _count(layout: RunLayout) -> int:
    """Return how many clients there are; 0 where that is not known, as of some of them."""
    if layout.rows:
        return len(layout.table())
    return len(layout.clients) if layout.clients.keys() == {*range(len(layout.clients))} else 0
