"""A run that another program trained: its folder in the registry, and the checkpoints written to it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from torch import Tensor

from fedscope.adoption.identity import Identity
from fedscope.checkpoints.file.checkpoint import save_checkpoint, versions
from fedscope.checkpoints.file.fields import UNKNOWN, checked_name, parse
from fedscope.checkpoints.file.schema import Added, CheckpointInfo, Manifest, ModelSpec
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.client_rows import packed
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.choices import Told
from fedscope.errors import UserError
from fedscope.pairing import MENDS
from fedscope.storage import move


class Adopted:
    """Writes a run that another program trained; its ``name`` must not be taken.

    ``known`` are settings by the names of :class:`Settings`, the others count as unknown; ``notes`` say what
    was renamed or left out.
    """

    def __init__(
        self,
        registry: RunRegistry,
        name: str,
        model: ModelSpec,
        identity: Identity,
        *,
        source: str,
        known: Mapping[str, object] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        data, self._rows = identity.data, identity.rows
        values = {"dataset": data.name, "model": model.name, **(known or {}), **identity.known}
        stated = tuple(sorted(values))
        self.settings = parse(Settings, {"method": UNKNOWN, "partition": UNKNOWN, **values}, name)
        self.model, self.data = model, data
        self._newest: int | None = None
        self.run: RunFolder = registry.create(
            Manifest(
                name=checked_name(name),
                created=datetime.now(UTC).isoformat(),
                settings=self.settings,
                model=model,
                data=data,
                versions=versions(),
                partial=True,
                rows=self._rows.spec if self._rows else None,
                added=Added(source=source, stated=stated, notes=(*identity.notes, *notes)),
            ),
            packed(self._rows) if self._rows else None,
        )

    def info(
        self,
        round: int,
        *,
        client: int | None = None,
        samples: int | None = None,
        average: str = "cld",
        told: Told = "run",
        origin: str = "",
    ) -> CheckpointInfo:
        if client is None:
            samples = sum(self._rows.spec.counts) if self._rows else self.data.train_samples
        return CheckpointInfo.model_validate(
            {
                "run": self.run.name,
                "kind": "global" if client is None else "client",
                "round": round,
                "client": client,
                "average": average,
                "samples": samples,
                "settings": self.settings,
                "model": self.model,
                "data": self.data,
                "versions": versions(),
                "told": told,
                "origin": origin,
                "rows": self._rows.spec.sha256 if self._rows else "",
            }
        )

    def tell(self, notes: Sequence[str]) -> None:
        manifest = self.run.manifest()
        assert manifest.added is not None
        added = manifest.added.model_copy(update={"notes": (*manifest.added.notes, *notes)})
        self.run.write_manifest(manifest.model_copy(update={"added": added}))

    def final(self, state: Mapping[str, Tensor], round: int) -> None:
        """Write the last global model, which finishes the run: call it last."""
        save_checkpoint(self.run.final, state, self.info(round))

    def newest(self, state: Mapping[str, Tensor], round: int) -> None:
        """Write the newest global model of an unfinished run; the one before is kept as that of its round."""
        if self._newest is not None:
            move(self.run.last, self.run.after_round(self._newest), below=self.run.root)
        save_checkpoint(self.run.last, state, self.info(round))
        self._newest = round

    def finish(self) -> None:
        if self._newest is not None:
            move(self.run.last, self.run.final, below=self.run.root)
            self._newest = None

    def after_round(self, state: Mapping[str, Tensor], round: int) -> None:
        save_checkpoint(self.run.after_round(round), state, self.info(round))

    def average(self, name: str, state: Mapping[str, Tensor], round: int) -> None:
        """Write another newest global model: the mean of clients ``sel`` or ``all``."""
        save_checkpoint(self.run.average(name), state, self.info(round, average=name))

    def upload(
        self,
        client: int,
        state: Mapping[str, Tensor],
        round: int,
        *,
        told: Told,
        origin: str,
        samples: int | None = None,
        keep: bool = False,
    ) -> None:
        """Write a client's last upload; ``keep``: also as the one of this round, beside those of others."""
        if self._rows and told not in MENDS:
            counts = self._rows.spec.counts
            if client >= len(counts):
                raise UserError(
                    f"{self.data.name} has {len(counts)} clients from 0 up, and no client {client}"
                )
            samples = counts[client]
        info = self.info(round, client=client, samples=samples or None, told=told, origin=origin)
        save_checkpoint(self.run.client(client), state, info)
        if keep:
            save_checkpoint(self.run.client(client, round), state, info)
