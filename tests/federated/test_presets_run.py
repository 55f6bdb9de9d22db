"""Every preset starts on data in its true layout and completes one truncated round."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from torch import nn

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.federated.setup.paper_presets import presets
from fedscope.models.catalogue import NETWORKS
from fedscope.workflows.train.train_request import TrainRequest
from fedscope.workflows.train.train_runs import train
from tests.data.layouts import make

SIZES = {
    "tinyimagenet": {"classes": 20, "train": 8, "test": 2},
    "imagenet200": {"classes": 20, "train": 40, "test": 2},
    "digits5": {},
    "domainnet": {"per_class": 8},
}
TRUNCATED = {
    "rounds": 1, "epochs": 1, "clients_limit": 1, "steps_limit": 1, "batch_size": 16, "test_samples": 12,
}  # fmt: skip
ONE_OF_EACH_DATASET = {str(one.settings["dataset"]): name for name, one in presets().items()}
ONE_OF_EACH_DIVISION = {
    tuple(str(one.settings.get(key)) for key in ("dataset", "partition", "alpha", "clients", "phi")): name
    for name, one in presets().items()
    if "cifar" in str(one.settings["dataset"])
}


@pytest.fixture(scope="module")
def made(cifar_dir: Path) -> Path:
    """A folder with every data set of the presets in its true layout."""
    for name, sizes in SIZES.items():
        make(name, cifar_dir, **sizes)
    return cifar_dir


def narrow(make: Callable[..., nn.Module], classes: int, channels: int = 3) -> nn.Module:
    """Return a network with at most 64 hidden numbers: a round of AlexNet's 4,096 takes 7 GB."""
    network, width = make(classes, channels), 0
    for name, layer in network.named_children():
        if isinstance(layer, nn.Linear):
            inputs, width = width or layer.in_features, min(layer.out_features, 64)
            setattr(network, name, nn.Linear(inputs, width))
        elif isinstance(layer, nn.BatchNorm1d):
            setattr(network, name, nn.BatchNorm1d(width))
    return network


@pytest.fixture(autouse=True)
def _networks_are_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("alexnet_bn", "digit_cnn6"):
        true = NETWORKS[name]
        monkeypatch.setitem(NETWORKS, name, replace(true, make=partial(narrow, true.make)))


@pytest.fixture(autouse=True)
def _images_are_decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_DECODERS", "0")


@pytest.fixture(autouse=True)
def _finished_runs_are_freed() -> Iterator[None]:
    """With their data and clients' memories: until the collector comes by, gigabytes of them pile up."""
    yield
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("name", presets())
def test_every_preset_completes_a_truncated_round(name: str, made: Path, tmp_path: Path) -> None:
    truncated_round(name, made, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH_DIVISION.values())
def test_the_real_cifar_serves_the_clients_of_each_division(
    name: str, real_data: Path, tmp_path: Path
) -> None:
    truncated_round(name, real_data, tmp_path)


def truncated_round(name: str, data_dir: Path, registry: Path) -> None:
    preset, place = presets()[name], list(presets()).index(name)
    method, *options = preset.methods[place % len(preset.methods)].split()
    given = dict(option.split("=") for option in options)
    (done,) = train(
        TrainRequest(
            registry, {**TRUNCATED, "method": method}, given, preset=name, name="run", device="cpu",
            data_dir=data_dir,
        )
    )  # fmt: skip
    info = load_checkpoint(Path(done.final)).info
    assert (info.round, info.settings.method, info.settings.steps_limit) == (1, method, 1)
    assert info.metrics["loss"] is not None
    assert done.rounds == 1
    if name in ONE_OF_EACH_DATASET.values():
        assert list(verify_run(RunFolder(registry / "run"))) == []
