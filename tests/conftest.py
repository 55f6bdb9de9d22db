"""Fixtures every test may use: small trained runs, and the real CIFAR-100 where it is at hand."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.registry import Registry, Run
from fedscope.checkpoints.schema import Settings
from fedscope.federated.federation import Federation, open_run, prepare
from fedscope.federated.rounds import train


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["FEDSCOPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _commands_take_one_thread() -> None:
    """Threads of several tests' commands that share a core wait for each other most of the time."""
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """The bits depend on the threads, and the tests already take all cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _freed_memory_is_returned() -> Iterator[None]:
    """A command's process keeps it for steps of one size; here, after all sizes, it would be gigabytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedscope.process.reuse_freed_memory", lambda: False)
        yield


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_REGISTRY", raising=False)


@pytest.fixture(scope="session")
def real_data() -> Path | None:
    """The folder of the real CIFAR-10 and CIFAR-100, if they are here."""
    given = os.environ.get("FEDSCOPE_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / "cifar100").is_dir() else None


@pytest.fixture(scope="session")
def cifar_dir(real_data: Path | None) -> Path:
    """The folder of the real CIFAR-100's parquet files; tests skip without it."""
    if real_data is None:
        pytest.skip("CIFAR-100 is not here; set FEDSCOPE_DATA to a folder with its parquet files")
    return real_data


TINY = Settings(clients=3, rounds=2, epochs=1)


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Three clients of digits, before any training; `train` changes its model, so build another to train."""
    return prepare(TINY, {})


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished two-round run on digits, in a registry of its own."""
    registry = Registry(tmp_path_factory.mktemp("registry"))
    federation = prepare(TINY, {})
    run = open_run(federation, registry, "tiny", resume=False)
    train(federation, run, lambda _: None)
    return run
