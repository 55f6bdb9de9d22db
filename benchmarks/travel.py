"""A registry pushed to an S3 server and pulled from it again, by commands that are killed on the way.

    python benchmarks/travel.py [--megabytes N] [--kills K] [--seed S] [--folder DIR]

The server is moto's, a process of this machine. Half of the kills (SIGKILL) fall into the push, half into the
pull, each once a drawn share of the bytes has arrived; after each the same command is run again. Printed are
where the kills fell, how often a file was sent or fetched, and what `runs verify` says of the copy.
"""

import argparse
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import s3fs
import torch

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import save_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, DataSpec, Manifest, ModelSpec, Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry

RUNS, ROUNDS = 10, 4
SETTINGS = Settings(clients=2, rounds=ROUNDS, save_clients="none", keep_every=1)
MODEL = ModelSpec(name="resnet_digits", classes=10, channels=1)
DATA = DataSpec(name="digits", augmentation="none", fingerprint="", train_samples=1, test_samples=1)
URL = "s3://bucket/r"
FEDSCOPE = (sys.executable, "-m", "fedscope", "runs")


def make_run(registry: RunRegistry, name: str, numbers: int, generator: torch.Generator) -> None:
    """Write a finished run whose models have so many numbers."""
    created = f"2026-01-01T00:00:{name[-2:]}+00:00"
    run = registry.create(
        Manifest(name=name, created=created, settings=SETTINGS, model=MODEL, data=DATA, versions={})
    )
    for round in range(1, ROUNDS + 1):
        info = CheckpointInfo(
            run=name, kind="global", round=round, samples=1, settings=SETTINGS, model=MODEL, data=DATA,
            versions={}, metrics={"accuracy": round / 10},
        )  # fmt: skip
        state = {"weight": torch.randn(numbers, generator=generator)}
        for path in (run.after_round(round), run.best, run.final if round == ROUNDS else run.last):
            save_checkpoint(path, state, info)
        run.append_metrics(Round(round=round, accuracy=round / 10, loss=1.0))
    run.last.unlink()


def tree(root: Path) -> dict[str, bytes]:
    """Return the files of all runs of a registry."""
    names = [f"{run.name}/{name}" for run in RunRegistry(root).folders() for name in layout.files(run.folder)]
    return {name: (root / name).read_bytes() for name in names}


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Yield the address of an S3 server with an empty bucket named ``bucket``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=errors
        )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(1000):
            try:
                bucket = urllib.request.Request(f"{address}/bucket", method="PUT")
                urllib.request.urlopen(bucket).close()
                break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        server.kill()
        server.wait()


def killed(command: tuple[str, ...], arrived: Callable[[], int], until: float) -> int:
    """Run a command and kill it once ``until`` bytes have arrived; return how many had."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while (now := arrived()) < until:
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(command)} ended by itself with {process.returncode}")
        time.sleep(0.01)
    process.kill()
    if process.wait() != -9:
        raise SystemExit("the command was not killed on the way")
    return now


def below(root: Path) -> int:
    """Return the bytes of all files below a folder, some of which may vanish meanwhile."""
    total = 0
    for path in root.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def travel(command: tuple[str, ...], arrived: Callable[[], int], total: int, draws: list[float]) -> None:
    """Run a command to its end, which is killed once each of the drawn shares has arrived."""
    for number, share in enumerate(draws, 1):
        found = killed(command, arrived, share * total)
        print(f"{command[4]}: kill {number} after {found / 1e6:.0f} of {total / 1e6:.0f} MB", flush=True)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    moved = sum(float(found) for found in re.findall(r"([0-9.]+) MB (?:sent|fetched)", done.stdout))
    print(f"{command[4]}: at its end in {time.perf_counter() - start:.1f} s, {moved:.0f} MB of it then")


def times(log: Path, method: str) -> Counter[int]:
    """Return how many of the objects were asked for once, twice, … by the server's log."""
    asked = Counter(re.findall(rf'"(?:\x1b\[[0-9;]*m)*{method} (/bucket/r/objects/\S+) ', log.read_text()))
    return Counter(asked.values())


def main() -> None:
    """Print where the kills fell and what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to write. [default: a temporary folder]")
    options = parser.parse_args()
    draw, half = random.Random(options.seed), options.kills // 2
    shares = [[(place + draw.random()) / (half + 1) for place in range(half)] for _ in range(2)]
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    here, there, log = folder / "here", folder / "there", folder / "log"
    try:
        generator = torch.Generator().manual_seed(options.seed)
        for number in range(RUNS):  # the last kept round, the best and the final model are one
            numbers = options.megabytes * 250_000 // (RUNS * ROUNDS)
            make_run(RunRegistry(here), f"run-{number:02d}", numbers, generator)
        sent = tree(here)
        total = sum(map(len, {*sent.values()}))
        print(
            f"{RUNS} runs, {len(sent)} files, {below(here) / 1e6:.0f} MB, {total / 1e6:.0f} MB without copies"
        )
        with s3_server(log) as address:
            os.environ |= {
                "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1", "OMP_NUM_THREADS": "1",
            }  # fmt: skip

            store = s3fs.S3FileSystem(use_listings_cache=False)

            def stored() -> int:
                return sum(found["size"] for found in store.find("bucket/r/objects", detail=True).values())

            travel((*FEDSCOPE, "push", "--all", URL, "--registry", str(here)), stored, total, shares[0])
            travel(
                (*FEDSCOPE, "pull", "--all", URL, "--registry", str(there)),
                lambda: below(there), below(here), shares[1],
            )  # fmt: skip
        for word, method in (("sent", "PUT"), ("fetched", "GET")):
            counts = ", ".join(f"{n} {k} times" for k, n in sorted(times(log, method).items()))
            print(f"contents {word}: {counts}")
        print("the copy is", "the same, byte for byte" if tree(there) == sent else "ANOTHER")
        subprocess.run((*FEDSCOPE, "verify", "--registry", str(there)), check=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
