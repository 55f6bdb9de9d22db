"""A last batch of one image: refused before training where a step cannot be taken on it, for any network."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from fedscope.checkpoints.file.settings import Settings
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.setup.compatibility import check_batches
from fedscope.federated.setup.federation import prepare
from fedscope.models.catalogue import build
from fedscope.own import reference_to
from tests.federated.cases import options

PIPELINE = Pipeline((0.5,), (0.25,))


class Functional(nn.Module):
    """Normalises one pixel by the function, not by a module."""

    def forward(self, images: Tensor) -> Tensor:
        return batch_norm(images.mean((2, 3)), None, None, training=True)


class Learned(nn.Sequential):
    """Has a parameter, whatever its layers have."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers, nn.PReLU())


VECTORS = Learned(nn.Flatten(), nn.BatchNorm1d(64))
PIXEL = Learned(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(1))
FUNCTION = Learned(Functional())
IMAGES = Learned(nn.BatchNorm2d(1))
TOKENS = Learned(nn.Flatten(2), nn.BatchNorm1d(1))  # BatchNorm1d, of 64 values per channel


def check(model: nn.Module, sizes: list[int], method: str = "fedavg", side: int = 8, **changes: Any) -> None:
    """Check clients of these sizes on a split of images of ``side`` pixels."""
    given = changes.pop("given", {})
    settings = Settings(clients=len(sizes), rounds=1).model_copy(
        update={"options": options(method) | given, **changes}
    )
    split = Split(torch.zeros(20, 1, side, side, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64))
    check_batches(model, parse(method), settings, [range(size) for size in sizes], split, PIPELINE)


@pytest.mark.parametrize("model", [VECTORS, PIXEL, FUNCTION])
@pytest.mark.parametrize(
    ("size", "batch", "drop_last", "mend"),
    [
        (12, 11, False, "--drop-last"),
        (12, 11, True, ""),
        (12, 6, False, ""),
        (1, 8, True, "fewer --clients"),
        (9, 1, True, "a larger --batch-size"),
    ],
)
def test_one_value_per_channel_cannot_be_normalised(
    model: nn.Module, size: int, batch: int, drop_last: bool, mend: str
) -> None:
    if not mend:
        check(model, [12, size], batch_size=batch, drop_last=drop_last)
        return
    with pytest.raises(UserError, match=mend):
        check(model, [12, size], batch_size=batch, drop_last=drop_last)


def test_a_batch_that_no_step_reaches_may_be_of_one_image() -> None:
    check(VECTORS, [12], batch_size=11, local_steps=1)
    with pytest.raises(UserError, match="--drop-last"):
        check(VECTORS, [12], batch_size=11, local_steps=2)


@pytest.mark.parametrize("model", [IMAGES, TOKENS, nn.Conv2d(1, 1, 1)])
def test_many_values_per_channel_can(model: nn.Module) -> None:
    check(model, [12], batch_size=11)


@pytest.mark.parametrize(("name", "side", "fits"), [("resnet18", 32, False), ("resnet20", 4, False),
                                                    ("resnet20", 8, True)])  # fmt: skip
def test_a_residual_network_whose_last_maps_are_one_pixel(name: str, side: int, fits: bool) -> None:
    model = build(name, 10, 1, torch.Generator().manual_seed(0)).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random = torch.get_rng_state()
    if fits:
        check(model, [12], side=side, batch_size=11)
    else:
        with pytest.raises(UserError, match="--drop-last"):
            check(model, [12], side=side, batch_size=11)
    assert not any(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize(("sides", "fits"), [("8,4", False), ("8,5", True)])
def test_gradaugs_smallest_images_count(sides: str, fits: bool) -> None:
    model = build("resnet_digits", 10, 1, torch.Generator().manual_seed(0))
    given = {"gradaug.resolutions": sides}
    if fits:
        check(model, [12], "gradaug", batch_size=11, given=given)
    else:
        with pytest.raises(UserError, match="--drop-last"):
            check(model, [12], "gradaug", batch_size=11, given=given)


def test_a_variance_over_one_image_is_refused() -> None:
    check(IMAGES, [12], "man", batch_size=11)
    with pytest.raises(UserError, match="variance"):
        check(IMAGES, [12], "man", batch_size=11, given={"man.taps": "tiny_main"})


def test_a_run_is_refused_before_it_starts() -> None:
    settings = Settings(
        clients=1, partition="iid", rounds=1, train_samples=33, batch_size=32, method="gradaug"
    )
    given = {"gradaug.resolutions": "8,4"}
    with pytest.raises(UserError, match="--drop-last"):
        prepare(settings, given)
    prepare(settings.model_copy(update={"drop_last": True}), given)


def test_a_last_batch_that_no_step_reaches_is_none() -> None:
    check(VECTORS, [33], batch_size=32, steps_limit=1)
    with pytest.raises(UserError, match="would be one image"):
        check(VECTORS, [33], batch_size=32, steps_limit=2)


class Twice(nn.Module):
    """Runs one ReLU after both of its layers, or one after each."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(64, 8), nn.Linear(8, 8), nn.Linear(8, 10)
        self.relu = nn.ReLU()
        self.other = self.relu if shared else nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.other(self.two(self.relu(self.one(images.flatten(1))))))  # type: ignore[no-any-return]


class Squeezing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1)).squeeze()  # type: ignore[no-any-return]


def prepared(model: Any, method: str = "fedavg") -> None:
    given = {"dataset": "digits", "augmentation": "none", "clients": 2, "train_samples": 40}
    settings = Settings(model=reference_to(model), method=method, rounds=1).model_copy(update=given)
    prepare(settings, {})


def test_a_module_that_runs_twice_hides_an_output_from_the_method() -> None:
    prepared(lambda: Twice(shared=True))
    prepared(lambda: Twice(shared=False), "fedavg+man")
    with pytest.raises(UserError, match="relu, which the network runs 2 times in one pass"):
        prepared(lambda: Twice(shared=True), "fedavg+man")


def test_a_network_that_loses_the_dimension_of_one_sample_is_refused() -> None:
    with pytest.raises(UserError, match=r"returned a tensor \(10,\) of one sample, not \(1, 10\)"):
        prepared(Squeezing)


def test_a_tensor_that_cannot_be_copied_is_named() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(UserError, match="parametrizations"):
            prepared(lambda: nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(64, 10))))
