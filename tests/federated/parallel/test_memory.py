"""What clients and server remember, through kills and damage."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.federated.parallel.memory import Memory


def vectors(value: float) -> Tensor:
    return torch.full((6,), value)


def kept(folder: Path, rounds: dict[int, list[int]], prune: bool = True) -> Memory:
    """Record for each round its clients, with vectors 100·round + client."""
    memory = Memory(folder, 6)
    for round, clients in rounds.items():
        with memory.record(round) as writer:
            for client in clients:
                writer.client(client, vectors(100 * round + client))
            writer.server({"h": torch.full((3,), float(round))})
        if prune:
            memory.prune(round)
    return memory


def test_the_newest_vectors_come_back(tmp_path: Path) -> None:
    memory = kept(tmp_path, {1: [0, 2], 2: [2, 5]})
    for seen in (memory, Memory.after(tmp_path, 6, 2)):
        found = {client: v[0].item() for client in range(6) if (v := seen.recall(client)) is not None}
        assert found == {0: 100, 2: 202, 5: 205}
        assert seen.server(2)["h"].tolist() == [2, 2, 2]


def test_an_unfinished_round_is_forgotten(tmp_path: Path) -> None:
    kept(tmp_path, {1: [0], 2: [0]}, prune=False)
    (tmp_path / ".round-0003.xyz").mkdir()  # what a kill leaves in the middle of writing
    memory = Memory.after(tmp_path, 6, 1)
    recalled = memory.recall(0)
    assert recalled is not None
    assert recalled[0] == 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["round-0001"]


def test_only_what_is_needed_stays(tmp_path: Path) -> None:
    kept(tmp_path, {1: [0, 1], 2: [1, 2], 3: [0], 4: [2]})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["round-0002", "round-0003", "round-0004"]


def test_rounds_are_numbers_and_not_words(tmp_path: Path) -> None:
    kept(tmp_path, {9999: [0, 1], 10000: [0]}, prune=False)
    recalled = Memory.after(tmp_path, 6, 10000).recall(0)
    assert recalled is not None
    assert recalled[0] == 1_000_000


def test_the_folders_hold_at_most_twice_the_clients(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rounds = {t: sorted(generator.choice(60, 6, replace=False).tolist()) for t in range(1, 120)}
    memory = kept(tmp_path, rounds)
    newest = {client: t for t, clients in rounds.items() for client in clients}
    rows = sum(path.stat().st_size for path in tmp_path.glob("*/clients.f32")) // 24
    assert rows <= 2 * len(newest)
    for seen in (memory, Memory.after(tmp_path, 6, 119)):
        for client, t in newest.items():
            recalled = seen.recall(client)
            assert recalled is not None
            assert (recalled == 100 * t + client).all()


def test_an_error_while_writing_leaves_no_round(tmp_path: Path) -> None:
    memory = kept(tmp_path, {1: [0]})
    with pytest.raises(KeyboardInterrupt), memory.record(2) as writer:
        writer.client(0, vectors(9))
        raise KeyboardInterrupt
    recalled = Memory.after(tmp_path, 6, 2).recall(0)
    assert recalled is not None
    assert recalled[0] == 100


@pytest.mark.parametrize("harm", ["truncate", "index", "gone"])
def test_damage_is_told(tmp_path: Path, harm: str) -> None:
    kept(tmp_path, {1: [0, 1]})
    rows = tmp_path / "round-0001" / "clients.f32"
    if harm == "truncate":
        rows.write_bytes(rows.read_bytes()[:-4])
    elif harm == "gone":
        rows.unlink()
    else:
        (tmp_path / "round-0001" / "state.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        Memory.after(tmp_path, 6, 1)


def test_a_damaged_server_state_is_told(tmp_path: Path) -> None:
    memory = kept(tmp_path, {1: [0]})
    (tmp_path / "round-0001" / "server.pt").write_bytes(b"")
    with pytest.raises(UserError, match="truncated or damaged"):
        memory.server(1)


def test_a_changed_bit_is_found_before_it_is_used(tmp_path: Path) -> None:
    memory = kept(tmp_path, {1: [0, 1]})
    path = tmp_path / "round-0001" / "clients.f32"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert memory.recall(0) is not None
    with pytest.raises(UserError, match=r"client 1 .*clients\.f32"):
        memory.recall(1)
    index = tmp_path / "round-0001" / "state.json"
    index.write_text(index.read_text().replace("[0, 1]", "[1, 0]"))
    with pytest.raises(UserError, match=r"state\.json .*hash"):
        Memory.after(tmp_path, memory.width, 1)


def test_memory_is_kept_in_its_run_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    folder = tmp_path / "registry" / "run" / "state"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    with pytest.raises(UserError, match="is a link"):
        kept(folder, {1: [0]})
    with pytest.raises(UserError, match="is a link"):
        Memory.after(folder, 6, 0)
    assert [path.name for path in elsewhere.iterdir()] == [".git"]
