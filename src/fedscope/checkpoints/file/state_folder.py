"""The folder of one round's state: the client of each row, and a check of every byte.

clients.f32    one row of vectors per client that took part
server.pt      the server's vectors
state.json     the clients of the rows, a CRC-32 of each, the content hash of server.pt, and its own seal
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from torch import Tensor

from fedscope.checkpoints.file.checkpoint import content_hash, read_content, write_tensors
from fedscope.checkpoints.file.formats import seal
from fedscope.errors import UserError
from fedscope.storage import new_file, open_regular, read_bytes, write_text
from fedscope.storage.limits import parse_json


@dataclass(frozen=True)
class StateIndex:
    """The content of ``state.json``."""

    clients: tuple[int, ...]
    checks: tuple[int, ...]
    server: str


def write_state(
    folder: Path, clients: Sequence[int], checks: Sequence[int], server: dict[str, Tensor]
) -> None:
    """Write all files but the rows, which are in the folder already."""
    if server:
        with new_file(folder / "server.pt", below=folder) as handle:
            write_tensors(handle, server)
    content = {"clients": list(clients), "checks": list(checks), "server": content_hash(server)}
    write_text(folder / "state.json", json.dumps({**content, "sha256": seal(content)}), below=folder)


def read_state(folder: Path) -> StateIndex:
    try:
        content = parse_json(read_bytes(folder / "state.json"))
        size = (folder / "clients.f32").stat().st_size
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(folder, str(error)) from error
    if not isinstance(content, dict) or content.pop("sha256", None) != seal(content):
        raise _damaged(folder, "state.json does not match its hash")
    clients, checks = content.get("clients"), content.get("checks")
    if not (_whole_numbers(clients) and _whole_numbers(checks) and len(checks) == len(clients)):
        raise _damaged(folder, "state.json lists no clients, or no check for each")
    if size % (4 * max(len(clients), 1)) or (size and not clients):
        raise _damaged(folder, f"clients.f32 has {size} bytes for {len(clients)} clients")
    return StateIndex(tuple(clients), tuple(checks), str(content.get("server")))


def check_row(folder: Path, state: StateIndex, row: int, content: bytes | bytearray) -> None:
    if zlib.crc32(content) != state.checks[row]:
        client = state.clients[row]
        raise _damaged(folder, f"the vectors of client {client} in clients.f32 do not match their check")


def server_vectors(folder: Path, state: StateIndex) -> dict[str, Tensor]:
    if state.server == content_hash({}):
        return {}
    found = read_content(folder / "server.pt")
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise _damaged(folder, "server.pt holds no vectors")
    if state.server != content_hash(found):
        raise _damaged(folder, "server.pt does not match its hash")
    return found


def check_state(folder: Path) -> StateIndex:
    state = read_state(folder)
    if not server_vectors(folder, state) and (folder / "server.pt").exists():
        raise _damaged(folder, "server.pt is there, and state.json says that the server has no vectors")
    size = (folder / "clients.f32").stat().st_size // max(len(state.clients), 1)
    with open_regular(folder / "clients.f32") as handle:
        for row in range(len(state.clients)):
            check_row(folder, state, row, handle.read(size))
    return state


def _whole_numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _damaged(folder: Path, reason: str) -> UserError:
    return UserError(f"{folder} is damaged: {reason}; train the run anew under another --name")
