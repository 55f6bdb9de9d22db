"""The data sets by name: where each comes from and the pipelines its papers use.

Constants and transforms: Mendieta et al. 2022 (``fedalign``), Yashwanth et al. 2024 (``man``), each as in
the published code.
"""

from pathlib import Path

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Dataset, HubSource, load_digits, load_hub, load_synthetic
from fedscope.errors import UserError

HUB = {
    "cifar10": HubSource("uoft-cs/cifar10", image="img", label="label"),
    "cifar100": HubSource("uoft-cs/cifar100", image="img", label="fine_label"),
}
BUILT_IN = {"digits": load_digits, "synthetic": load_synthetic}
NAMES = (*BUILT_IN, *HUB)


def _fedalign(mean: tuple[float, ...], std: tuple[float, ...]) -> Pipeline:
    return Pipeline(mean, std, flip=0.5, crop=1.0, padding=4, padding_value="black")


def _man(mean: tuple[float, ...], std: tuple[float, ...]) -> Pipeline:
    return Pipeline(mean, std, flip=0.5, crop=0.5, padding=4, padding_value="mean")


_CIFAR10 = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
_CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

# The first pipeline of a data set is its default.
PIPELINES: dict[str, dict[str, Pipeline]] = {
    "digits": {"none": Pipeline((0.3054,), (0.3760,))},
    "synthetic": {"none": Pipeline((0.5,), (0.25,))},
    "cifar10": {
        "fedalign": _fedalign(*_CIFAR10),
        "man": _man((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        "none": Pipeline(*_CIFAR10),
    },
    "cifar100": {
        "fedalign": _fedalign(*_CIFAR100),
        "man": _man((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "none": Pipeline(*_CIFAR100),
    },
}


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Return the data set ``name``; ``data_dir`` as in :func:`fedscope.data.datasets.load_hub`.

    Raises:
        UserError: the name is unknown, or its files cannot be read.
    """
    _known(name)
    return BUILT_IN[name]() if name in BUILT_IN else load_hub(name, HUB[name], data_dir)


def pipeline(dataset: str, name: str | None = None) -> tuple[str, Pipeline]:
    """Return (name, pipeline) of a data set; without a name, its default.

    Raises:
        UserError: the data set or the pipeline is unknown.
    """
    _known(dataset)
    choices = PIPELINES[dataset]
    name = name or next(iter(choices))
    if name not in choices:
        raise UserError(f"unknown augmentation {name!r} for {dataset}; choose one of {', '.join(choices)}")
    return name, choices[name]


def _known(name: str) -> None:
    if name not in NAMES:
        raise UserError(f"unknown dataset {name!r}; choose one of {', '.join(NAMES)}")
