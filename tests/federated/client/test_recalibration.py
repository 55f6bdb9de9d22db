"""BatchNorm after local training: what is measured, what is sent, and that nothing else moves."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.client.recalibration import recalibrate
from fedscope.federated.methods import parse
from fedscope.federated.methods.personal import batchnorm
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.record.flat import FlatModel
from fedscope.models.catalogue import build
from tests.federated.cases import options
from tests.federated.runs import trained

PLAIN = Pipeline((0.5,), (0.25,))


@pytest.fixture
def parts() -> tuple[FlatModel, Split]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (64, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (64,), generator=generator)
    model = FlatModel(build("resnet_digits", 10, 1, generator))
    model.module.train()
    return model, Split(images, labels)


def test_statistics_are_the_mean_over_nine_batches(parts: tuple[FlatModel, Split]) -> None:
    model, split = parts
    rows = torch.arange(60)
    found = copy.deepcopy(model.module)
    seen: list[Tensor] = []
    norm = next(m for m in found.modules() if isinstance(m, nn.BatchNorm2d))
    norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    order = rows[torch.randperm(60, generator=torch.Generator().manual_seed(5))]
    for batch in order.split(6)[:9]:
        found(PLAIN.test(split.images, batch))  # in training mode
    mean = torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0)
    variance = torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0)
    generator = torch.Generator().manual_seed(5)
    accuracy = recalibrate(model, split, PLAIN, rows, 6, generator, keep=True)
    first = next(m for m in model.module.modules() if isinstance(m, nn.BatchNorm2d))
    assert first.running_mean is not None
    assert first.running_var is not None
    torch.testing.assert_close(first.running_mean, mean)
    torch.testing.assert_close(first.running_var, variance)
    assert (first.momentum, model.module.training, int(model.counters[0])) == (0.1, True, 9)
    model.module.eval()
    right = (model.module(PLAIN.test(split.images, rows)).argmax(1) == split.labels[rows]).float().mean()
    assert accuracy == pytest.approx(float(right))


def test_a_last_batch_of_one_image_has_no_statistics(parts: tuple[FlatModel, Split]) -> None:
    """BatchNorm could not normalise it where the last maps are one pixel, whatever ``--drop-last`` says."""
    _, split = parts
    pixels = Split(torch.as_tensor(split.images)[:, :, :4, :4], split.labels)
    model, ends = FlatModel(build("resnet_digits", 10, 1, torch.Generator().manual_seed(0))), []
    for count in (33, 32):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        rows = torch.empty(count, dtype=torch.int64).scatter_(0, order, torch.arange(count))
        values = model.values.clone()
        recalibrate(model, pixels, PLAIN, rows, 8, torch.Generator().manual_seed(0), keep=True)
        ends.append(model.values.clone())
        model.values.copy_(values)
        model.counters.zero_()
    assert torch.equal(*ends)


def test_reporting_leaves_the_model_alone(parts: tuple[FlatModel, Split]) -> None:
    model, split = parts
    values, counters = model.values.clone(), model.counters.clone()
    recalibrate(model, split, PLAIN, torch.arange(64), 8, torch.Generator().manual_seed(0), keep=False)
    assert torch.equal(model.values, values)
    assert torch.equal(model.counters, counters)


SMALL = Settings(clients=2, rounds=2, epochs=1, train_samples=200, test_samples=50, method="fedalign")


@pytest.mark.parametrize("method", ["fedalign", "gradaug"])
def test_a_report_changes_no_bit_and_an_upload_changes_batchnorm(tmp_path: Path, method: str) -> None:
    settings = SMALL.model_copy(update={"method": method, "rounds": 1})
    runs = {
        choice: trained(tmp_path, settings, {"post_bn": choice}, choice)
        for choice in ("off", "report", "upload")
    }
    states = {choice: load_checkpoint(run.final).state for choice, run in runs.items()}
    assert load_checkpoint(runs["off"].final).sha256 == load_checkpoint(runs["report"].final).sha256
    for name, values in states["off"].items():
        if values.is_floating_point():
            assert torch.equal(values, states["upload"][name]) != ("running" in name), name
    assert runs["off"].metrics()[0].train_accuracy is None
    measured = [run.metrics()[0].train_accuracy for run in (runs["report"], runs["upload"])]
    assert measured[0] == measured[1]
    assert 0 < float(str(measured[0])) <= 1


def test_what_is_uploaded_is_what_a_client_keeps(tmp_path: Path) -> None:
    """Under FedBN the re-estimated statistics are the client's own, and are there in its next round."""
    settings = SMALL.model_copy(update={"method": "fedbn+fedalign", "rounds": 1})
    run = trained(tmp_path, settings, {"post_bn": "upload"})
    sent = load_checkpoint(run.client(0)).state
    model = FlatModel(build("resnet_digits", 10, 1, torch.Generator()))
    model.load(sent)
    own = model.mask(batchnorm(model.module, options("fedbn")))
    kept = Memory.after(run.folder / "state", int(own.sum()), 1).recall(0)
    assert kept is not None
    assert torch.equal(kept, model.values[0, own])


def test_the_code_measures_and_does_not_send() -> None:
    for method in ("fedalign", "gradaug"):
        assert parse(method).values({}, "code")["post_bn"] == "report"
        assert parse(method).values({}, "paper")["post_bn"] == "off"
