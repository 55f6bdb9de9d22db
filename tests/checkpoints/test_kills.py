"""Writers that are killed at random moments, and eight that write at once."""

import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_root, verify_run
from fedscope.errors import UserError
from tests.checkpoints.cases import SETTINGS, info, manifest, state
from tests.processes import processes

SIZE = 300_000  # numbers: a kill falls into the writing of a checkpoint more often than not


def churn(root: Path, name: str, sender: Connection) -> None:
    """Write a run for ever, in all ways in which one is written; tell of each thing that is done."""
    torch.set_num_threads(1)
    registry = RunRegistry(root)
    long = {"settings": SETTINGS.model_copy(update={"rounds": 1_000_000})}
    run = registry.create(manifest(name).model_copy(update=long))
    sender.send_bytes(b"run 1")
    for step in range(1, 1_000_000):
        run.append_metrics(Round(round=step, loss=0.5))
        sender.send_bytes(b"metrics %d" % step)
        save_checkpoint(run.last, state(step, SIZE), info(name, step).model_copy(update=long))
        sender.send_bytes(b"weights %d" % step)
        run.tag(f"t{step}")
        sender.send_bytes(b"tag %d" % step)
        registry.rows()


def done_until_killed(root: Path, name: str, delay: float) -> dict[str, int]:
    """Start a writer, kill it ``delay`` seconds after its run is there; return what it had told."""
    context = processes()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=churn, args=(root, name, sender))
    process.start()
    sender.close()
    told = {}
    try:
        assert receiver.poll(60)
        time.sleep(delay)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        while True:
            what, number = receiver.recv_bytes().split()
            told[what.decode()] = int(number)
    except EOFError:
        return told
    finally:
        receiver.close()


def survives(root: Path, kills: int, seed: int) -> int:
    """Kill one writer after the other; nothing that was told may be lost, and nothing half may be read.

    Return how many left a temporary file behind, so were in the midst of writing one.
    """
    draw, registry = random.Random(seed), RunRegistry(root)
    for kill in range(kills):
        told = done_until_killed(root, f"r{kill}", draw.uniform(0, 0.08))
        run = registry.run(f"r{kill}")
        rounds = [record.round for record in run.metrics()]
        assert rounds == list(range(1, len(rounds) + 1))
        assert told.get("metrics", 0) <= len(rounds) <= told.get("metrics", 0) + 1
        if run.last.exists():
            (value,) = load_checkpoint(run.last).state["a.weight"].unique().tolist()
            assert told.get("weights", 0) <= value <= told.get("weights", 0) + 1
        else:
            assert "weights" not in told
        assert {f"t{step}" for step in range(1, told.get("tag", 0) + 1)} <= set(run.tags())
        assert f"r{kill}" in {row["name"] for row in registry.rows()}
    faults = [f for run in registry.folders() for f in verify_run(run)] + list(verify_root(registry))
    assert {fault.problem for fault in faults} <= {"left over by a process that was killed; delete it"}
    listing = registry.rows()
    assert [row["status"] for row in listing] == ["unfinished"] * kills
    assert registry.rebuild() == listing
    return len(faults)


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    survives(tmp_path, kills=5, seed=0)


@pytest.mark.slow
def test_forty_killed_writers_lose_nothing(tmp_path: Path) -> None:
    assert survives(tmp_path, kills=40, seed=1) > 4


def register(root: Path, writer: int, count: int) -> None:
    torch.set_num_threads(1)
    registry = RunRegistry(root)
    for number in range(count):
        run = registry.create(manifest(registry.free_name(f"w{writer}-{number}")))
        run.append_metrics(Round.model_validate({"round": 1, "accuracy": writer + number / 100}))
        save_checkpoint(run.last, state(number), info(run.name))
        if number % 5 == 0:
            assert run.name in {row["name"] for row in registry.rows()}


def test_eight_writers_of_fifty_runs_lose_none(tmp_path: Path) -> None:
    context = processes()
    writers = [context.Process(target=register, args=(tmp_path, n, 50)) for n in range(8)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 8
    registry = RunRegistry(tmp_path)
    rows = {row["name"]: row["accuracy"] for row in registry.rows()}
    assert rows == {f"w{w}-{n}": w + n / 100 for w in range(8) for n in range(50)}
    assert {row["name"]: row["accuracy"] for row in registry.rebuild()} == rows
    assert list(verify_root(registry)) == []


def claim(root: Path, count: int, sender: Connection) -> None:
    """Take as many of the same names as are to be had."""
    for number in range(count):
        try:
            RunRegistry(root).create(manifest(f"same-{number}"))
        except UserError:
            continue
        sender.send(number)
    sender.send(None)


def test_a_name_is_given_to_one_of_eight(tmp_path: Path) -> None:
    context = processes()
    pipes = [context.Pipe(duplex=False) for _ in range(8)]
    writers = [context.Process(target=claim, args=(tmp_path, 20, sender)) for _, sender in pipes]
    for process in writers:
        process.start()
    won = [number for receiver, _ in pipes for number in iter(receiver.recv, None)]
    for process in writers:
        process.join()
    assert sorted(won) == list(range(20))
    assert all(RunFolder(tmp_path / f"same-{number}").manifest() for number in won)
