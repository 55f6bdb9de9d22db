"""Ways to change a run that is whole, and seal it anew: hashes are right, and a claim is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.formats import seal
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder

Forge = Callable[[RunFolder], None]

SETTINGS = Settings(
    method="scaffold", model="mlp_digits", clients=3, participation=0.7, rounds=2, epochs=1, eval_model="all",
    save_clients="all", keep_every=2, train_samples=60, test_samples=50, validation=0.1,
)  # fmt: skip


def described(**changes: object) -> Forge:
    """Forge the manifest."""
    return lambda run: run.write_manifest(run.manifest().model_copy(update=changes))


def measured(line: int, **changes: object) -> Forge:
    """Forge a line of the metrics, counted from 1."""

    def forge(run: RunFolder) -> None:
        rounds = run.metrics()
        forged = rounds[line - 1] = rounds[line - 1].model_copy()
        forged._json = {**forged.to_json(), **changes}  # edited() would refuse what is no record
        run.write_metrics(rounds)

    return forge


def told(name: str, **changes: Any) -> Forge:
    """Forge the description of a checkpoint; ``metrics`` are changed one by one."""

    def forge(run: RunFolder) -> None:
        found = load_checkpoint(run.folder / name)
        update = {**changes, "metrics": {**found.info.metrics, **changes.get("metrics", {})}}
        save_checkpoint(run.folder / name, found.state, found.info.model_copy(update=update))

    return forge


def weighted(name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Forge:
    """Forge the weights of a checkpoint."""

    def forge(run: RunFolder) -> None:
        found = load_checkpoint(run.folder / name)
        change(found.state)
        save_checkpoint(run.folder / name, found.state, found.info)

    return forge


def remembered(name: str, **changes: object) -> Forge:
    """Forge a state.json."""

    def forge(run: RunFolder) -> None:
        path = run.folder / name
        content = {**json.loads(path.read_text()), **changes}
        content.pop("sha256")
        put(path, json.dumps({**content, "sha256": seal(content)}).encode())

    return forge


def put(path: Path, content: bytes) -> None:
    """Write a new file, in place of what may be a link to the honest run's."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def written(name: str, content: bytes = b"") -> Forge:
    return lambda run: put(run.folder / name, content)


def copied(source: str, name: str) -> Forge:
    return lambda run: put(run.folder / name, (run.folder / source).read_bytes())


def removed(*names: str) -> Forge:
    def forge(run: RunFolder) -> None:
        for name in names:
            (run.folder / name).unlink()

    return forge


def both(*forges: Forge) -> Forge:
    """Forge one thing after the other."""

    def forge(run: RunFolder) -> None:
        for one in forges:
            one(run)

    return forge


def first(run: RunFolder) -> int:
    """Return a client that took part in round 1."""
    return run.metrics()[0].clients[0]


def unfinished(run: RunFolder) -> None:
    """Make the final model that of a run that goes on."""
    run.final.replace(run.last)


def cut(run: RunFolder) -> None:
    """Leave the first line of the metrics."""
    run.write_metrics(run.metrics()[:1])


def shortened(run: RunFolder) -> None:
    """Have the model of round 2 say that the run was to have one round."""
    told("round-0002.pt", settings=run.manifest().settings.model_copy(update={"rounds": 1}))(run)


def checkpoints(run: RunFolder) -> list[str]:
    return [name for name in layout.files(run.folder) if layout.kind(name) == "checkpoint"]


def outdated(run: RunFolder) -> None:
    """Make the last model of a client that took part in both rounds that of the first."""
    both = [set(record.clients) for record in run.metrics()]
    client = min(both[0] & both[1])
    copied(f"round-0001/clients/{client:04d}.pt", f"clients/{client:04d}.pt")(run)


def worst(run: RunFolder) -> None:
    """Make the model of round 2 the best, whichever is."""
    rounds = []
    for one in run.metrics():
        value = 0.9 if one.round == 1 else 0.1
        scores = {"all": value, "cld": value, "sel": value}
        rounds.append(one.edited(accuracy=value, accuracies=scores, validation={"accuracy": value}))
    run.write_metrics(rounds)
    for path in [run.final, run.average("all"), *map(run.after_round, run.rounds())]:
        told(path.name, metrics={"accuracy": 0.1})(run)
    told("best.pt", round=2, metrics={"accuracy": 0.1, "loss": rounds[1].loss})(run)


def uninvited(run: RunFolder) -> None:
    """Give round 1 the upload of the client that was not there."""
    part = run.metrics()[0].clients
    (absent,) = {0, 1, 2} - set(part)
    name = f"round-0001/clients/{absent:04d}.pt"
    copied(f"clients/{absent:04d}.pt", name)(run)
    told(name, round=1)(run)


def recounted(counts: tuple[int, ...]) -> Forge:
    """Say that each client holds another number of rows."""

    def forge(run: RunFolder) -> None:
        rows = run.manifest().rows
        assert rows
        described(rows=rows.model_copy(update={"counts": counts}))(run)

    return forge


def turned(name: str) -> Forge:
    """Turn a bit."""

    def forge(run: RunFolder) -> None:
        content = bytearray((run.folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        put(run.folder / name, bytes(content))

    return forge
