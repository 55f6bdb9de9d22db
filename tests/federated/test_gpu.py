"""What only a GPU can show: recorded steps are the eager ones, and workers may share a device."""

from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.methods import METHODS, parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import LocalSettings, Task
from fedscope.models.catalogue import build
from tests.federated.parallel.test_workers import trained
from tests.federated.runs import trained as whole_run
from tests.federated.test_laws import settings_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    "settings",
    [
        LocalSettings(2, 32, 0.9, True, 1e-3, 10.0, "fp32"),
        LocalSettings(2, 32, 0.9, True, 1e-3, 10.0, "bf16"),
        LocalSettings(2, 32, weight_decay=1e-3, clip=10.0, optimizer="adamw", eps=0.1),
    ],
)
def test_a_recorded_step_is_the_eager_one(settings: LocalSettings) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (70, 3, 32, 32), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (70,), generator=generator)).to("cuda")
    record, ends = parse("feddyn+man"), []
    for eager in (True, False):
        model = build("resnet56_bottleneck", 10, 3, torch.Generator().manual_seed(1)).cuda()
        flat = FlatModel(model)
        pipeline = Pipeline((0.5,) * 3, (0.25,) * 3, flip=0.5, crop=1.0, padding=4)
        trainer = LocalTrainer(flat, split, pipeline, record, record.values({}, "paper"), settings)
        if eager:
            trainer._run = trainer._step
        start, counters = flat.values[0].clone(), flat.counters.clone()
        for seed in (0, 1):  # the second client replays what the first recorded, the ragged batch too
            task = Task(
                torch.arange(70, device="cuda"), torch.Generator().manual_seed(seed), torch.Generator()
            )
            done = trainer.train(start, counters, [task], 0.05 / (seed + 1))
        ends.append(done)
    torch.testing.assert_close(ends[1].values, ends[0].values, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ends[1].loss, ends[0].loss, rtol=1e-3, atol=1e-4)
    assert torch.equal(ends[1].counters, ends[0].counters)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_as_on_the_cpu(tmp_path: Path, method: str) -> None:
    """Recorded or not, with its state on both sides; fedalign and fedspeed also by the published code."""
    losses = []
    for device in ("cpu", "cuda"):
        settings = settings_of(method, device=device, reading="code", clip=10.0)
        losses.append([m.loss for m in whole_run(tmp_path, settings, name=device).metrics()])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.slow
def test_two_workers_on_one_gpu_are_one(tmp_path: Path) -> None:
    runs = [
        trained(
            tmp_path, f"w{w}", "--workers", str(w), "--rounds", "2", "--device", "cuda",
            "--model", "resnet_digits",
        )
        for w in (1, 2)
    ]  # fmt: skip
    hashes = [[load_checkpoint(path).sha256 for path in (run.final, *run.clients())] for run in runs]
    assert hashes[0] == hashes[1]
