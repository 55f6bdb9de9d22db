"""Every kind of file, with a bit turned or the end cut off: told, or read as it was."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.state_folder import check_state, read_state, server_vectors
from fedscope.checkpoints.registry.contents import File
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import push_run
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.parallel.memory import Memory
from tests.checkpoints.cases import small_run


@dataclass(frozen=True)
class Target:
    """A file and how it is read: to something that can be compared."""

    path: Path
    read: Callable[[], object]


def with_state(root: Path) -> RunFolder:
    run = small_run(root)
    memory = Memory(run.folder / "state", 50)
    with memory.record(3) as writer:
        for client in (0, 1):
            writer.client(client, torch.randn(50, generator=torch.Generator().manual_seed(client)))
        writer.server({"h": torch.arange(4.0)})
    return run


def weights(path: Path) -> object:
    found = load_checkpoint(path)
    return found.info, found.sha256, {name: tensor.tolist() for name, tensor in found.state.items()}


def remembered(folder: Path) -> object:
    check_state(folder)
    state = read_state(folder)
    return state, {n: v.tolist() for n, v in server_vectors(folder, state).items()}


def pulled(place: Path, root: Path) -> object:
    shutil.rmtree(root, ignore_errors=True)
    registry = RunRegistry(root)
    pull_run(registry, remote(str(place)), "small", lambda *_: None)
    run = registry.run("small")
    return run.manifest(), run.metrics(), weights(run.final), weights(run.best), run.tags()


def targets(root: Path) -> Iterator[Target]:
    """Yield every kind of file of a registry, with its reader."""
    run = with_state(root)
    registry = RunRegistry(root)
    registry.rows()
    place = root / "place"
    push_run(run, remote(str(place)), lambda *_: None)
    sha256 = File.from_path(run.final).sha256
    folder = run.folder / "state" / "round-0003"
    yield Target(run.folder / "manifest.json", run.manifest)
    yield Target(run.folder / "metrics.jsonl", run.metrics)
    yield Target(run.final, lambda: weights(run.final))
    for name in ("clients.f32", "state.json", "server.pt"):
        yield Target(folder / name, lambda: remembered(folder))
    yield Target(root / "index.sqlite", registry.rows)
    for pushed in (place / "runs" / "small.json", place / "objects" / sha256[:2] / sha256[2:]):
        yield Target(pushed, lambda: pulled(place, root / "elsewhere"))


def bears(target: Target, damaged: bytes) -> str:
    """Write ``damaged`` over the file and read it; return whether that was told or made no difference."""
    whole, expected = target.path.read_bytes(), target.read()
    target.path.write_bytes(damaged)
    try:
        found = target.read()
    except UserError:
        return "told"
    finally:
        target.path.write_bytes(whole)
    assert found == expected
    return "harmless"


def bits_turned(root: Path, count: int) -> dict[str, dict[str, int]]:
    """Turn one or eight bits at random places, ``count`` times in each kind of file; count the outcomes."""
    draw, seen = random.Random(0), {}
    for target in targets(root):
        whole, outcomes = target.path.read_bytes(), {"told": 0, "harmless": 0}
        for _ in range(count):
            damaged = bytearray(whole)
            for _ in range(draw.choice((1, 1, 1, 8))):
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            outcomes[bears(target, bytes(damaged))] += 1
        seen[target.path.name] = outcomes
    return seen


def test_a_turned_bit_is_told_or_does_no_harm(tmp_path: Path) -> None:
    seen = bits_turned(tmp_path, 15)
    assert seen.pop("index.sqlite")["told"] == 0  # the index is never believed
    for name in seen.keys() - {"final.pt", "server.pt"}:
        assert seen[name] == {"told": 15, "harmless": 0}  # every byte counts


@pytest.mark.slow
def test_two_hundred_turned_bits_in_each_kind(tmp_path: Path) -> None:
    seen = bits_turned(tmp_path, 200)
    print(seen)  # for the table in docs/registry.md
    assert [sum(outcomes.values()) for outcomes in seen.values()] == [200] * 9


def test_a_cut_file_is_told_or_does_no_harm(tmp_path: Path) -> None:
    draw = random.Random(1)
    for target in targets(tmp_path):
        whole = target.path.read_bytes()
        lengths = [0, 1, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(5))]
        for length in lengths:
            outcome = bears(target, whole[:length])
            last_line_end = length == len(whole) - 1 and whole.endswith(b"\n")
            assert outcome == "told" or last_line_end or target.path.name == "index.sqlite"


def test_verify_names_each_planted_fault(tmp_path: Path) -> None:
    for number, target in enumerate(list(targets(tmp_path / "first"))[:6]):
        root = tmp_path / str(number)
        run = with_state(root)
        assert list(verify_run(run)) == []
        path = run.folder / target.path.relative_to(tmp_path / "first" / "small")
        half = len(path.read_bytes()) // 2
        path.write_bytes(path.read_bytes()[:half] + bytes(b ^ 4 for b in path.read_bytes()[half:]))
        (fault,) = verify_run(run)
        assert path.name in f"{fault.path} {fault.problem}"
        assert str(root) not in fault.problem
