"""The vectors of clients and server that outlive a round, in files.

    RUN/state/round-0007/clients.f32     one row of vectors per client that took part
    RUN/state/round-0007/state.json      which client each row belongs to, and checks of every byte
    RUN/state/round-0007/server.pt       the server's vectors, where there are any

The folder of a round appears whole, before the round counts as done; a client's vectors are those of its
newest round. No vector is held in memory between two uses, whatever the number of clients: the page cache
of the system keeps what is read often. A folder is deleted when every client in it has a newer row;
rows of its last few clients are copied to newer folders.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from fedscope.checkpoints.file.state_folder import (
    StateIndex,
    check_row,
    read_state,
    server_vectors,
    write_state,
)
from fedscope.errors import UserError
from fedscope.storage import atomic_folder, move, new_file, open_regular, remove_tree


@dataclass
class Memory:
    """The state of a run's method after its newest round, under ``folder``; a client's row is (width,)."""

    folder: Path
    width: int
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)  # client → (round, row)
    _states: dict[int, StateIndex] = field(default_factory=dict)  # round → what is in its folder

    @classmethod
    def after(cls, folder: Path, width: int, round: int) -> "Memory":
        """Return the state after ``round`` rounds; leftovers of later, unfinished rounds are deleted."""
        memory = cls(folder, width)
        for path in folder.glob(".*"):  # of a process killed while it wrote or deleted
            remove_tree(path, below=memory._root)
        for number in sorted(int(path.name[6:]) for path in folder.glob("round-*")):
            if number > round:
                memory._delete(memory._path(number))
            else:
                memory._take(number)
        return memory

    def holds(self, round: int) -> bool:
        return round in self._states

    def lost(self, last: Mapping[int, int]) -> list[int]:
        """Return the clients whose vectors are older than their ``last`` rounds, or not there."""
        return [client for client, round in last.items() if self.rows.get(client, (0, 0))[0] < round]

    def recall(self, client: int) -> Tensor | None:
        if client not in self.rows:
            return None
        round, row = self.rows[client]
        with open_regular(self._path(round, "clients.f32")) as handle:
            handle.seek(row * self._row_bytes)
            content = bytearray(self._row_bytes)
            handle.readinto(content)
        check_row(self._path(round), self._states[round], row, content)
        return torch.frombuffer(content, dtype=torch.float32) if content else torch.empty(0)

    def server(self, round: int) -> dict[str, Tensor]:
        return server_vectors(self._path(round), self._states[round])

    @contextmanager
    def record(self, round: int) -> Iterator["Writer"]:
        """Open the folder of ``round`` for writing; it appears when the block ends without an error."""
        with atomic_folder(self._path(round), below=self._root) as temporary:
            with new_file(temporary / "clients.f32", below=temporary) as rows:
                writer = Writer(rows)
                yield writer
                for client in self._stragglers(writer.clients):
                    vectors = self.recall(client)
                    if vectors is not None:
                        writer.client(client, vectors)
            writer.close(temporary)
        self._take(round)

    def prune(self, round: int, *, keep_every: int = 0) -> None:
        """Delete the folders before ``round`` that hold no client's newest vectors.

        With ``keep_every`` K those of every K-th round stay where the server alone remembers something.
        """
        needed = {newest for newest, _ in self.rows.values()} | {round}
        for path in self.folder.glob("round-*"):
            number = int(path.name[6:])
            kept = bool(keep_every) and not self.width and number % keep_every == 0
            if number not in needed and not kept:
                self._delete(path)

    def _stragglers(self, leaving: Sequence[int]) -> list[int]:
        """Return the clients to copy, since less than half of the rows in their folder are still needed.

        The clients ``leaving`` have newer vectors by now. So the folders hold at most twice as many vectors
        as there are clients.
        """
        left = self.rows.keys() - set(leaving)
        needed = Counter(self.rows[client][0] for client in left)
        stale = {round for round, count in needed.items() if 2 * count < len(self._states[round].clients)}
        return sorted(client for client in left if self.rows[client][0] in stale)

    @property
    def _row_bytes(self) -> int:
        return 4 * self.width

    @property
    def _root(self) -> Path:
        return self.folder.parents[1]  # of the registry, below which lies RUN/state

    def _delete(self, path: Path) -> None:
        """Delete a folder such that a kill leaves either all of it, or nothing under its name."""
        hidden = path.with_name(f".{path.name}.deleted")
        move(path, hidden, below=self._root)
        remove_tree(hidden, below=self._root)

    def _path(self, round: int, name: str = "") -> Path:
        return self.folder / f"round-{round:04d}" / name

    def _take(self, round: int) -> None:
        state = read_state(self._path(round))
        size = self._path(round, "clients.f32").stat().st_size
        if size != len(state.clients) * self._row_bytes:
            raise UserError(
                f"{self._path(round)} is damaged: clients.f32 has {size} bytes; train the run anew under "
                "another --name"
            )
        self._states[round] = state
        self.rows |= {client: (round, row) for row, client in enumerate(state.clients)}


class Writer:
    """The folder of one round while it is written."""

    def __init__(self, rows: BinaryIO):
        self._rows = rows
        self.clients: list[int] = []
        self._checks: list[int] = []
        self._server: dict[str, Tensor] = {}

    def client(self, client: int, vectors: Tensor) -> None:
        content = vectors.to("cpu", torch.float32).contiguous().numpy().tobytes()
        self._rows.write(content)
        self._checks.append(zlib.crc32(content))
        self.clients.append(client)

    def server(self, state: dict[str, Tensor]) -> None:
        self._server = {name: vector.cpu() for name, vector in state.items()}

    def close(self, folder: Path) -> None:
        write_state(folder, self.clients, self._checks, self._server)
