"""A pipe where a file is expected, in a registry or as an argument: it is refused at once, and never read."""

import os
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.index import INDEX
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call

OWN = ("--model", "mine:net", "--data", "mine:data")
ADDED = ("--model", "resnet_digits", "--dataset", "digits")
# what is a pipe, the exit code, and the command that would read it
READERS = [
    (f"registry/{INDEX}", 0, "runs", "list"),
    (f"registry/{INDEX}", 2, "runs", "verify"),
    (f"registry/{INDEX}", 2, "runs", "rebuild"),
    (f"registry/{INDEX}-journal", 0, "runs", "list"),
    (f"registry/{INDEX}-wal", 2, "runs", "verify"),
    ("registry/tiny/manifest.json", 2, "runs", "show", "tiny"),
    ("registry/tiny/manifest.json", 2, "hessian", "tiny", "--clients"),
    ("registry/tiny/manifest.json", 0, "runs", "list"),
    ("registry/tiny/manifest.json", 2, "train", "--name", "tiny", "--resume"),
    ("registry/tiny/metrics.jsonl", 2, "runs", "show", "tiny"),
    ("registry/tiny/metrics.jsonl", 2, "plot-runs", "tiny"),
    ("registry/tiny/metrics.jsonl", 2, "runs", "verify"),
    ("registry/tiny/final.pt", 2, "hessian", "tiny"),
    ("registry/tiny/final.pt", 2, "runs", "export", "tiny", "--out", "a"),
    ("registry/tiny/final.pt", 2, "runs", "verify"),
    ("registry/tiny/.lock", 0, "runs", "verify"),
    ("registry/tiny/.lock", 2, "runs", "push", "tiny", "place"),
    ("registry/tiny/rows.zz", 2, "hessian", "tiny", "--clients", "--client-data", "own"),
    ("registry/tiny/tags", 2, "runs", "tag", "tiny", "good"),
    ("registry/.analysis/a.json", 0, "plot-runs", "tiny"),
    ("registry/.analysis/recipes/a.json", 0, "plot-runs", "tiny"),
    ("registry/.analysis/a.json", 0, "report", "tiny", "--no-compute"),
    ("a.pt", 2, "hessian", "a.pt", *OWN),
    ("a.pt", 2, "runs", "add", "a.pt", *ADDED),
    ("a.safetensors", 2, "runs", "add", "a.safetensors", *ADDED),
    ("a/model.safetensors", 2, "runs", "add", "a", *ADDED),
    ("a.npy", 2, "runs", "add", "registry/tiny/final.pt", "--client", "a.npy", *ADDED),
    ("a.pt", 2, "runs", "add", "registry/tiny/final.pt", "--client", "a.pt", *ADDED),
    ("place/runs/tiny.json", 2, "runs", "pull", "tiny", "place"),
    ("a.png", 2, "runs", "show", "a.png", "--provenance"),
    ("a.json", 2, "runs", "verify", "a.json"),
    ("a.json", 2, "plot-hessian", "a.json"),
    ("a.json", 2, "plot-landscape", "--from", "a.json"),
    ("a.json", 2, "plot-runs", "--from", "a.json"),
    ("a.json", 2, "report", "tiny", "--record", "a.json"),
    ("a.toml", 2, "train", "--config", "a.toml"),
    ("mine.py", 2, "train", "--data", "mine:data", "--model", "mine:net"),
    ("data/cifar10/train-0.parquet", 2, "train", "--dataset", "cifar10", "--data-dir", "data"),
    ("gallery/a.json", 0, "figures", "index", "--out", "gallery"),
    ("gallery/a/README.md", 0, "figures", "index", "--out", "gallery"),
]


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(
    ("place", "code", "command"), [(case[0], case[1], case[2:]) for case in READERS], ids=str
)
def test_no_command_waits_for_a_pipe(
    copied: RunRegistry, capsys: pytest.CaptureFixture[str], place: str, code: int, command: tuple[str, ...]
) -> None:
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert call(command) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert path.is_fifo()
