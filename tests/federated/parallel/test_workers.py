"""Several processes, killed processes: the same bits, or a clear word, and never a hang."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.popen_fork import Popen
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.layout import LOCK
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.cli.main import call
from fedscope.federated.parallel import workers
from fedscope.federated.parallel.memory import Memory
from tests.data.layouts import make
from tests.processes import finished, started

# Unequal clients, state on both sides, something to augment the order with, a ragged last batch.
TRAIN = [
    *["train", "--method", "feddyn+man", "--model", "mlp_digits", "--clients", "7", "--participation", "0.6"],
    *["--epochs", "1", "--batch-size", "50", "--momentum", "0.9", "--threads", "1", "--clip", "1"],
]
PATIENCE = 120  # seconds; what takes longer hangs


def words(registry: Path, name: str, *options: str) -> list[str]:
    return [*TRAIN, "--registry", str(registry), "--name", name, *options]


def trained(registry: Path, name: str, *options: str) -> RunFolder:
    assert call(words(registry, name, *options)) == 0
    return RunFolder(registry / name)


def story(run: RunFolder) -> list[dict[str, object]]:
    """Return the metrics without what depends on the machine's mood."""
    moods = ("seconds", "seconds_in", "peak_memory_bytes", "workers")
    return [{k: v for k, v in m.to_json().items() if k not in moods} for m in run.metrics()]


def bits(run: RunFolder) -> list[object]:
    """Return everything a run leaves behind: weights, uploads, memories, server state, metrics."""
    files = [run.final, run.best, *run.clients()]
    rounds = len(run.metrics())
    memory = Memory.after(run.folder / "state", 2410, rounds)
    vectors = [None if (v := memory.recall(client)) is None else v.tolist() for client in range(7)]
    return [
        [load_checkpoint(path).sha256 for path in files],
        vectors,
        {name: vector.tolist() for name, vector in memory.server(rounds).items()},
        story(run),
    ]


def children(pid: int) -> list[int]:
    """Return the worker processes below ``pid``."""
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()[1:]]
    return [int(p) for p, parent, args in rows if int(parent) == pid and "spawn_main" in args]


@pytest.mark.slow
@pytest.mark.parametrize(("stack", "count"), [(1, 3), (3, 2)])
def test_the_number_of_workers_changes_no_bit(tmp_path: Path, stack: int, count: int) -> None:
    options = ("--rounds", "3", "--stack", str(stack), "--partition", "iid")
    alone, together = (trained(tmp_path, f"w{w}", "--workers", str(w), *options) for w in (1, count))
    assert bits(alone) == bits(together)
    peaks = together.metrics()[0].peak_memory_bytes
    assert isinstance(peaks, list)
    assert len(peaks) == count
    assert min(peaks) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["feddc", "fedbn+fedcurv", "fedfor+mixup+stochdepth", "moon", "fedgloss+ema", "fedwmsam"]
)
@pytest.mark.usefixtures("at_once")
def test_every_kind_of_message_reaches_the_workers(tmp_path: Path, method: str) -> None:
    """Memories, uploads, broadcasts, personal tensors and draws: as with one process."""
    network = () if method in ("feddc", "fedgloss+ema", "fedwmsam") else ("--model", "resnet_digits")
    small = ("--method", method, "--train-samples", "150", "--batch-size", "20", "--rounds", "3")
    runs = [trained(tmp_path, f"w{w}", "--workers", str(w), *small, *network) for w in (1, 2)]
    hashes = [[load_checkpoint(path).sha256 for path in (run.final, *run.clients())] for run in runs]
    assert hashes[0] == hashes[1]
    assert story(runs[0]) == story(runs[1])


@pytest.mark.slow
def test_torchrun_is_the_same_run(tmp_path: Path) -> None:
    alone = trained(tmp_path, "alone", "--rounds", "2")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "fedscope", *words(tmp_path, "two", "--rounds", "2")]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2  # rank 0 speaks, and nobody else
    assert bits(RunFolder(tmp_path / "two")) == bits(alone)


def test_under_torchrun_its_processes_are_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert call(words(tmp_path, "two", "--workers", "2")) == 2
    assert "leave --workers out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dead_worker_ends_the_run_with_a_word_and_it_resumes(tmp_path: Path) -> None:
    many = words(tmp_path, "cut", "--workers", "3", "--rounds", "100000")
    with started(*many) as command:
        next(line for line in command.errors if "round 2/" in line)
        os.kill(children(command.pid)[1], signal.SIGKILL)
        code, errors = command.finish()
        assert code == 2
        assert "worker 2 died (signal SIGKILL); continue with --resume" in errors
        assert "Traceback" not in errors
        assert not children(command.pid)
    done = len(RunFolder(tmp_path / "cut").metrics())
    alone = words(tmp_path, "cut", "--rounds", "100000", "--resume")
    with started(*alone) as command:
        line = next(line for line in command.errors if "round " in line)
        assert int(line.split("round ")[1].split("/")[0]) >= done >= 2
        code, errors = finished(*alone)  # while the first is at it
        assert (code, "another process is training 'cut'" in errors) == (2, True)


def fail(group: workers.Workers) -> None:
    raise OSError("the reason")


def never(group: workers.Workers) -> None:
    time.sleep(3600)


def lost(group: workers.Workers) -> None:
    raise workers.WorkerLost


def well(group: workers.Workers) -> None:
    time.sleep(0.1)


@pytest.mark.parametrize("work", [fail, lost])
def test_who_watches_the_children_ends_before_the_store_that_it_asks(
    work: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = workers._death

    def death(*args: Any, **kwargs: Any) -> Exception | None:
        time.sleep(0.5)
        return slow(*args, **kwargs)

    monkeypatch.setattr(workers, "_death", death)
    before = threading.active_count()
    with (
        pytest.raises((RuntimeError, workers.WorkerLost)),
        workers.started(2, torch.device("cpu"), 1, work) as group,
    ):
        group.receive(1, torch.zeros(1))
    assert threading.active_count() == before


def test_a_childs_end_is_read_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two ask a fork server at once, one reads 255 for a child that did well (cpython issue 130895)."""
    asking = set()
    poll = Popen.poll

    def polled(child: Popen, flag: int = os.WNOHANG) -> int | None:
        if child.returncode is None:
            asking.add(threading.current_thread())
        return poll(child, flag)

    monkeypatch.setattr(Popen, "poll", polled)
    with workers.started(2, torch.device("cpu"), 1, well):
        pass
    assert len(asking) == 1


def test_a_failing_worker_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match=r"worker 1 failed(.|\n)*the reason"),
        workers.started(2, torch.device("cpu"), 1, fail) as group,
    ):
        group.receive(1, torch.zeros(1))


def test_an_error_of_rank_0_ends_the_others() -> None:
    before = children(os.getpid())  # another test's, such as those that decode images
    with pytest.raises(KeyError), workers.started(2, torch.device("cpu"), 1, never):
        raise KeyError
    assert children(os.getpid()) == before


def test_the_groups_threads_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a reference to it waits for the collector, as those of an operator's graphs do."""
    home = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in home.items():
        monkeypatch.setenv(name, value)

    def threads() -> set[str]:
        return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}

    with workers.joined():
        waiting: list[object] = [dist.group.WORLD]
        waiting.append(waiting)
        dist.all_reduce(torch.ones(1))
        assert "pt_gloo_runloop" in threads()
        del waiting
    assert "pt_gloo_runloop" not in threads()


@pytest.mark.slow
def test_a_worker_that_dies_while_the_group_forms_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "from fedscope.federated.parallel import workers\n"
        "def die(*_):\n    os.kill(os.getpid(), 9)\n"
        "if __name__ != '__main__':\n    workers._group = die\n"
        "else:\n    with workers.started(2, torch.device('cpu'), 1, die): pass\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "worker 1 died (signal SIGKILL)" in done.stderr


@pytest.mark.slow
def test_the_other_workers_end_when_the_first_is_killed(tmp_path: Path) -> None:
    with started(*words(tmp_path, "cut", "--workers", "2", "--rounds", "100000")) as command:
        next(line for line in command.errors if "round 1/" in line)
        others = children(command.pid)
        assert len(others) == 1
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in others) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in others)


def killed(cut: RunFolder, train: list[str], attempts: int) -> None:
    """Kill the whole process group at random moments, resume each time, once with two workers."""
    draw, kills = random.Random(0), 0
    for attempt in range(attempts):
        resume = ["--resume"] if (cut.folder / "manifest.json").exists() else []
        before = len(cut.metrics())
        count = "2" if attempt == 3 else "1"
        with started(*train, "--workers", count, *resume) as command:
            deadline = time.monotonic() + PATIENCE
            while len(cut.metrics()) == before and command.code is None and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(0.1 * draw.random())
            kills += command.code is None
            os.killpg(command.pid, signal.SIGKILL)
    assert kills == attempts
    assert not cut.final.exists()


@pytest.mark.slow
def test_ten_kills_change_no_bit(tmp_path: Path) -> None:
    rounds = ("--rounds", "80", "--save-clients", "last")
    whole, cut = trained(tmp_path, "whole", *rounds), RunFolder(tmp_path / "cut")
    killed(cut, words(tmp_path, "cut", *rounds), 10)
    trained(tmp_path, "cut", *rounds, "--resume")
    assert bits(cut) == bits(whole)
    assert {path.name for path in cut.folder.rglob(".*")} <= {LOCK}  # nothing half-written stays behind


# Sorted shards, a step budget with stragglers, AdamW that stays with the client, cosine after a warm-up.
PROTOCOL = [
    *[
        "train",
        "--method",
        "fedprox+man",
        "--model",
        "mlp_digits",
        "--clients",
        "6",
        "--participation",
        "0.7",
    ],
    *["--partition", "shards", "--shards", "2", "--train-samples", "300", "--batch-size", "25"],
    *["--local-steps", "6", "--stragglers", "0.5", "--optimizer", "adamw", "--optimizer-state", "client"],
    *["--lr", "0.01", "--lr-schedule", "cosine", "--lr-warmup", "2", "--threads", "1"],
    *["--save-clients", "all", "--keep-steps", "2:all:all"],
]


def models(run: RunFolder) -> dict[str, str]:
    """The content of every checkpoint of a run, by its path below it."""
    files = sorted(run.folder.rglob("*.pt"))
    checkpoints = [path for path in files if "state" not in path.parts]
    return {str(path.relative_to(run.folder)): load_checkpoint(path).sha256 for path in checkpoints}


@pytest.mark.slow
def test_kills_of_a_run_that_uses_every_local_setting_change_no_bit(tmp_path: Path) -> None:
    options = [*PROTOCOL, "--rounds", "30", "--registry", str(tmp_path)]
    assert call([*options, "--name", "whole"]) == 0
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    killed(cut, [*options, "--name", "cut"], 4)
    assert call([*options, "--name", "cut", "--resume"]) == 0
    assert story(cut) == story(whole)
    assert models(cut) == models(whole)
    assert len(whole.steps()) > 30
    assert not list(verify_run(cut))


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("stack", ["1", "2"])
def test_a_run_that_uses_every_local_setting_does_not_depend_on_the_workers(
    tmp_path: Path, stack: str
) -> None:
    options = [*PROTOCOL, "--rounds", "4", "--registry", str(tmp_path), "--stack", stack]
    for count in ("1", "2"):
        assert call([*options, "--name", f"w{count}", "--workers", count]) == 0
    one, two = (RunFolder(tmp_path / name) for name in ("w1", "w2"))
    assert story(one) == story(two)
    assert models(one) == models(two)
    assert one.steps()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "options",
    [
        ["--eval-model", "all", "--shift", "bernoulli", "--shift-probability", "0.6", "--rounds", "3"],
        ["--partition", "longtail_stateless", "--phi", "0.5", "--rho", "0.1", "--memory", "reset",
         "--rounds", "3"],
        ["--optimizer", "adamw", "--optimizer-state", "client", "--momentum", "0", "--lr", "0.01",
         "--lr-schedule", "cosine", "--lr-warmup", "1", "--stack", "2", "--partition", "fixed_classes",
         "--classes-per-client", "3", "--stragglers", "0.5", "--rounds", "3", "--epochs", "2"],
    ],
)  # fmt: skip
def test_protocols_do_not_depend_on_the_workers(tmp_path: Path, options: list[str]) -> None:
    one, two = (
        trained(tmp_path, f"w{count}", *options, "--workers", str(count), "--save-clients", "none")
        for count in (1, 2)
    )
    assert story(one) == story(two)
    for file in sorted(path.name for path in one.folder.glob("*.pt")):
        assert load_checkpoint(one.folder / file).sha256 == load_checkpoint(two.folder / file).sha256


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_domains_are_evaluated_alike_by_any_workers(tmp_path: Path) -> None:
    data = make("digits5", tmp_path / "data").parent
    options = [
        "--preset", "fedfor/t4/col1", "--method", "fedbn", "--model", "resnet20", "--clients", "5",
        "--participation", "1", "--batch-size", "32", "--momentum", "0", "--rounds", "2",
        "--steps-limit", "1", "--test-samples", "40", "--data-dir", str(data), "--save-clients", "none",
    ]  # fmt: skip
    one, two = (trained(tmp_path, f"w{count}", *options, "--workers", str(count)) for count in (1, 2))
    assert len(dict(story(one)[-1]["domains"])) == 5  # type: ignore[call-overload]
    assert story(one) == story(two)
    assert load_checkpoint(one.final).sha256 == load_checkpoint(two.final).sha256
