"""Fixtures every test may use: small trained runs, made CIFAR files, the real ones where they are at hand."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.parallel import workers
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, open_run, prepare
from tests import commands, costs, tiers, tiny
from tests.data.layouts import make
from tests.processes import nothing_waits_for_the_disk, start_workers

os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")  # that of trio imports all of it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, default="all", help="tests that run: tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    tiers.choose(config.getoption("tier"))
    if file := os.environ.get("FEDSCOPE_DURATIONS"):
        config.pluginmanager.register(costs.Recorder(Path(file).resolve()))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["FEDSCOPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _commands_take_one_thread() -> None:
    """Threads of several tests' commands that share a core wait for each other most of the time."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)  # before the fixtures of modules, which come before those of tests


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """The bits depend on the threads, and the tests already take all cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_random_numbers() -> None:
    """What a test draws without a seed does not depend on the tests before it."""
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _freed_memory_is_returned() -> Iterator[None]:
    """A command's process keeps it for steps of one size; here, after all sizes, it would be gigabytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedscope.process.reuse_freed_memory", lambda *most: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", os.fsync)  # what it is comes back at the end
        nothing_waits_for_the_disk()
        yield


@pytest.fixture(autouse=True)
def _own_code_is_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one test wrote and imported, such as ``mine.py``, is not there for the next."""
    paths, before, folder = list(sys.path), set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = paths
    for name in set(sys.modules) - before:  # to look at all would take a thirtieth of the tests' time
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a writer of modules, ``code("mine", "…")``, into ``tmp_path``, the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(content, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with ``fedscope`` and ``python`` for shell scripts, which start in milliseconds."""
    with commands.programs(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small GPT-2 and its tokenizer."""
    return tiny.write_language_model(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small ViT and its image processor."""
    return tiny.write_image_model(tmp_path_factory.mktemp("vit"))


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_REGISTRY", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real CIFAR-10 and CIFAR-100, ``FEDSCOPE_DATA``; tests skip without it."""
    given = os.environ.get("FEDSCOPE_DATA")
    if not given:
        pytest.skip("needs the real CIFAR-10 and CIFAR-100; set FEDSCOPE_DATA to the folder of their files")
    return Path(given)


@pytest.fixture(scope="session")
def cifar_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CIFAR-10 and CIFAR-100 in their layout, small but enough for every preset's clients."""
    folder = tmp_path_factory.mktemp("cifar")
    make("cifar10", folder, train=400)
    make("cifar100", folder, train=100)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: the garbage collector need not look for it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Nor need it visit all of that again and again, a fifth of the tests' time, nor at the end."""
    gc.freeze()
    gc.set_threshold(7_000)
    return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for the real data; leave out what is of the other tier; put the dearest tests first."""
    for item in items:
        if "real_data" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
    others = [item for item in items if not tiers.runs(item)]
    if others:
        items[:] = [item for item in items if tiers.runs(item)]
        config.hook.pytest_deselected(items=others)
    costs.dearest_first(items)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork a run's workers from a process that has torch, where it is not the point how they start."""
    monkeypatch.setattr(workers, "start_processes", start_workers)


@pytest.fixture
def in_time() -> Iterator[None]:
    """End a test that waits for what never comes, or computes for ever."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("it takes for ever")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


TINY = Settings(clients=3, rounds=2, epochs=1)


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Three clients of digits, before any training; `train` changes its model, so build another to train."""
    return prepare(TINY, {})


def _trained(registry: RunRegistry, settings: Settings) -> RunFolder:
    federation = prepare(settings, {})
    run = open_run(federation, registry, "tiny", resume=False)
    train(federation, run, lambda _: None)
    return run


@pytest.fixture(scope="session")
def residual(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished two-round run on digits, in a registry of its own."""
    return _trained(RunRegistry(tmp_path_factory.mktemp("registry")), TINY)


@pytest.fixture(scope="session")
def perceptron(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same of a network without BatchNorm whose products take a tenth of the time."""
    settings = TINY.model_copy(update={"model": "mlp_digits"})
    return _trained(RunRegistry(tmp_path_factory.mktemp("registry")), settings)


@pytest.fixture(scope="session")
def run(residual: RunFolder) -> RunFolder:
    """What most tests take; modules that measure much have a ``run`` of their own, the perceptron's."""
    return residual
