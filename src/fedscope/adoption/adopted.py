"""A run that another program trained: its folder in the registry, and the checkpoints written to it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from fedscope.adoption.identity import Identity
from fedscope.checkpoints.file.checkpoint import save_checkpoint, versions
from fedscope.checkpoints.file.fields import UNKNOWN, checked_name, parse
from fedscope.checkpoints.file.schema import Added, CheckpointInfo, Manifest
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.client_rows import packed
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.choices import Told
from fedscope.errors import UserError
from fedscope.pairing import MENDS


class Adopted:
    """Writes a run that another program trained; its ``name`` must not be taken.

    Its network is the first variant of ``identity``. ``known`` are settings by the names of
    :class:`Settings`, the others count as unknown; ``notes`` say what was renamed or left out.
    """

    def __init__(
        self,
        registry: RunRegistry,
        name: str,
        identity: Identity,
        *,
        source: str,
        known: Mapping[str, object] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        (model, _), *_ = identity.variants
        data, self._rows = identity.data, identity.rows
        values = {"dataset": data.name, "model": model.name, **(known or {}), **identity.known}
        self._what: dict[str, Any] = {
            "settings": parse(Settings, {"method": UNKNOWN, "partition": UNKNOWN, **values}, name),
            "model": model,
            "data": data,
            "versions": versions(),
        }
        manifest = Manifest(
            name=checked_name(name),
            created=datetime.now(UTC).isoformat(),
            partial=True,
            rows=self._rows.spec if self._rows else None,
            added=Added(source=source, stated=tuple(sorted(values)), notes=(*identity.notes, *notes)),
            **self._what,
        )
        self.run: RunFolder = registry.create(manifest, packed(self._rows) if self._rows else None)

    def tell(self, notes: Sequence[str]) -> None:
        manifest = self.run.manifest()
        assert manifest.added is not None
        added = manifest.added.model_copy(update={"notes": (*manifest.added.notes, *notes)})
        self.run.write_manifest(manifest.model_copy(update={"added": added}))

    def save(self, path: Path, state: Mapping[str, Tensor], round: int, average: str = "cld") -> None:
        """Write a global model; the run's final one finishes it, and comes last."""
        every = sum(self._rows.spec.counts) if self._rows else self._what["data"].train_samples
        save_checkpoint(path, state, self._info(round, kind="global", average=average, samples=every))

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
                    f"{self._what['data'].name} has {len(counts)} clients from 0 up, and no client {client}"
                )
            samples = counts[client]
        info = self._info(
            round, kind="client", client=client, samples=samples or None, told=told, origin=origin
        )
        for path in (self.run.client(client), *([self.run.client(client, round)] if keep else [])):
            save_checkpoint(path, state, info)

    def _info(self, round: int, **about: object) -> CheckpointInfo:
        rows = self._rows.spec.sha256 if self._rows else ""
        return CheckpointInfo.model_validate(
            {"run": self.run.name, "round": round, "rows": rows, **self._what, **about}
        )
