"""Whose a client's file is, by what it says of itself; and the pairing of a run's clients."""

from pathlib import Path

from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.choices import Told
from fedscope.errors import UserError
from fedscope.pairing import Pairing


def whose(client: int, path: Path) -> tuple[Told, str]:
    """Return how it was told that a file is a client's, and which file, node, user or row it was."""
    try:
        info = describe_checkpoint(path)[0]
    except UserError:  # of another program
        return "name", path.name
    if info.client is None:
        return "name", path.name
    if info.client != client:
        raise UserError(
            f"{path} is client {client} by its name and client {info.client} by what it says of itself; "
            "restore it from a copy"
        )
    return info.told, info.origin


def pairing_in(run: RunFolder) -> Pairing | None:
    files = {int(path.stem): path for path in run.clients()}
    if not files:
        return None
    hashes = {client: describe_checkpoint(path)[1] for client, path in files.items()}
    sha256 = describe_checkpoint(run.newest)[1] if run.newest.is_file() else ""
    return Pairing.of({client: whose(client, path) for client, path in files.items()}, hashes, sha256)
