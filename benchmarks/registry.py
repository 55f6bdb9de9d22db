"""Registering and verifying a checkpoint of 100 million parameters, beside `sha256sum` of the same file.

    python benchmarks/registry.py [--parameters N] [--turns K] [--folder DIR]

Each turn does the three things one after the other, each in a process of its own; the times are medians. The
peak memory is that of the process above what it held before the tensors were made, in units of their bytes.
"""

import argparse
import hashlib
import multiprocessing
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, DataSpec, ModelSpec
from fedscope.checkpoints.file.settings import Settings

INFO = CheckpointInfo(
    run="large", kind="global", round=1, samples=1, settings=Settings(), versions={},
    model=ModelSpec(name="resnet_digits", classes=10, channels=1),
    data=DataSpec(name="digits", augmentation="none", fingerprint="", train_samples=1, test_samples=1),
)  # fmt: skip


def register(path: Path, parameters: int) -> float:
    """Write ``parameters`` numbers in a hundred tensors; return the seconds of the writing alone."""
    state = {f"{n}.weight": torch.randn(parameters // 100) for n in range(100)}
    start = time.perf_counter()
    save_checkpoint(path, state, INFO)
    return time.perf_counter() - start


def verify(path: Path, parameters: int) -> float:
    """Load and check the file; return the seconds."""
    start = time.perf_counter()
    load_checkpoint(path)
    return time.perf_counter() - start


def sha256sum(path: Path) -> float:
    """Return the seconds of coreutils' `sha256sum`."""
    start = time.perf_counter()
    subprocess.run(["sha256sum", str(path)], check=True, capture_output=True)
    return time.perf_counter() - start


def openssl(path: Path) -> float:
    """Return the seconds of the hash that Python has, which is faster where the processor knows SHA."""
    start = time.perf_counter()
    with path.open("rb") as handle:
        hashlib.file_digest(handle, "sha256")
    return time.perf_counter() - start


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(action: Callable[[Path, int], float], path: Path, parameters: int, sender: Connection) -> None:
    """Send the action's seconds and the memory it added."""
    before = peak()
    sender.send((action(path, parameters), peak() - before))


def alone(action: Callable[[Path, int], float], path: Path, parameters: int) -> tuple[float, int]:
    """Do the action in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(action, path, parameters, sender))
    process.start()
    found: tuple[float, int] = receiver.recv()
    process.join()
    return found


def main() -> None:
    """Print one line per thing that was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where to write. [default: a temporary folder]")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    path = folder / "large.pt"
    times: dict[str, list[float]] = {"register": [], "verify": [], "sha256sum": [], "hashlib": []}
    memory = {"register": 0, "verify": 0}
    try:
        for _ in range(options.turns):
            for name, action in (("register", register), ("verify", verify)):
                seconds, added = alone(action, path, options.parameters)
                times[name].append(seconds)
                memory[name] = max(memory[name], added)
            times["sha256sum"].append(sha256sum(path))
            times["hashlib"].append(openssl(path))
    finally:
        shutil.rmtree(folder)
    middle = {name: median(found) for name, found in times.items()}
    for name, seconds in middle.items():
        ratio = seconds / middle["sha256sum"]
        held = f", peak {memory[name] / (4 * options.parameters):.2f} x the tensors" if name in memory else ""
        print(f"{name:10} {seconds:6.2f} s = {ratio:.2f} x sha256sum{held}")


if __name__ == "__main__":
    main()
