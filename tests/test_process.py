import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fedscope
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.process import has_bfloat16, is_little, take_one_thread, threads_kept, use_device
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.train.train_request import TrainRequest
from fedscope.workflows.train.train_runs import train

PROGRAM = """
import resource, sys, torch
from fedscope.process import reuse_freed_memory
from fedscope.models.catalogue import build
if sys.argv[1] == "keep":
    assert reuse_freed_memory()
torch.set_num_threads(1)
model = build("convnet_cifar", 100, 3, torch.Generator().manual_seed(0))
inputs = torch.zeros(50, 3, 32, 32)
def steps(count):
    for _ in range(count):
        model(inputs).sum().backward()
steps(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


VECTORS = """
import sys, torch
from fedscope.process import resident_memory, reuse_freed_memory
reuse_freed_memory()
if sys.argv[1] == "apart":
    reuse_freed_memory(32 << 20)
before = resident_memory()
vectors = [torch.ones(10_000_000) for _ in range(4)]
del vectors
print(resident_memory() - before)
"""


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_larger_blocks_are_handed_back_when_they_are_freed() -> None:
    held = [
        int(subprocess.run([sys.executable, "-c", VECTORS, how], capture_output=True, check=True).stdout)
        for how in ("kept", "apart")
    ]
    assert held[0] > 3 * 40e6
    assert held[1] < 40e6


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_repeated_steps_ask_for_no_new_pages() -> None:
    faults = [
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)
        for how in ("plain", "keep")
    ]
    assert faults[0] > 5000  # what is lost without it: thousands per step
    assert faults[1] < faults[0] / 5


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86")
@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux has this file")
def test_bfloat16_is_the_processors_own_where_it_says_so() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    assert has_bfloat16(torch.device("cpu")) == ("avx512_bf16" in flags or "amx_bf16" in flags)


@pytest.mark.parametrize(
    ("parameters", "rows", "sample", "little"),
    [
        (19_810, 128, torch.zeros(1, 8, 8), True),  # the residual network of the digits: 1.6e8
        (19_810, 128, torch.zeros(3, 32, 32), False),  # the same on CIFAR's images
        (789_258, 128, torch.zeros(3072), True),  # a perceptron multiplies each weight once
        (789_258, 512, torch.zeros(3072), False),
        (20_000, 16, torch.zeros(64, dtype=torch.int64), True),  # tokens
        (2_100_000, 16, torch.zeros(64, dtype=torch.int64), False),
    ],
)
def test_little_work_is_told_by_parameters_rows_and_places(
    parameters: int, rows: int, sample: torch.Tensor, little: bool
) -> None:
    assert is_little(parameters, rows, sample) == little


def test_one_thread_is_taken_until_the_process_is_set_up_anew() -> None:
    with threads_kept():
        torch.set_num_threads(2)
        take_one_thread()
        take_one_thread()
        assert torch.get_num_threads() == 1
        use_device("cpu", None)
        assert torch.get_num_threads() == 2
        with threads_kept():
            take_one_thread()
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)  # as somebody wants it who never saw more
    use_device("cpu", None)
    assert torch.get_num_threads() == 1


def test_python_s_own_threads_stay(run: RunFolder, tmp_path: Path) -> None:
    with threads_kept():
        torch.set_num_threads(2)
        found = fedscope.measure(run.name, registry=run.root, samples=16, probes=2, tol=0.5, device="cpu")
        assert (found.record.problem.threads, torch.get_num_threads()) == (2, 2)
        trained = fedscope.train(
            registry=tmp_path,
            device="cpu",
            model="mlp_digits",
            rounds=1,
            epochs=1,
            clients=2,
            train_samples=64,
        )
        assert torch.get_num_threads() == 2
        assert trained.settings["threads"] == 1


def test_little_work_is_done_by_one_thread_unless_more_are_asked_for(run: RunFolder, tmp_path: Path) -> None:
    with threads_kept():
        for asked, done in ((None, 1), (2, 2)):
            torch.set_num_threads(2)
            targets = Targets(run.root, (run.name,), samples=16, threads=asked, device="cpu")
            (problem,) = problems(targets)
            assert (problem.description["threads"], torch.get_num_threads()) == (done, done)
        settings = {"model": "mlp_digits", "rounds": 1, "epochs": 1, "clients": 2, "train_samples": 64}
        for asked, done in ((None, 1), (2, 2)):
            torch.set_num_threads(2)
            request = TrainRequest(tmp_path, settings, name=f"t{asked}", device="cpu", threads=asked)
            (trained,) = train(request)
            known = RunRegistry(tmp_path).run(trained.run).manifest().settings
            assert (known.threads, torch.get_num_threads()) == (done, done)
