"""The data sets by name: one record each, with where it comes from and the pipelines its papers use.

Constants, transforms and splits: Mendieta et al. 2022 (``fedalign``), Yashwanth et al. 2024 (``man``), Li et
al. 2021 (``fedbn``), Tian et al. 2022 (FedFOR), Caldarola et al. 2022 (``fedasam``) and 2025 (``fedgloss``),
each as in the published code.
"""

from dataclasses import replace
from pathlib import Path

from fedscope.data.augment import AS_THEY_ARE, Pipeline
from fedscope.data.loading.dataset_record import DatasetRecord
from fedscope.data.loading.datasets import Dataset
from fedscope.data.loading.loading import load as load_record
from fedscope.data.reading import split_rules as rules
from fedscope.data.reading.photo import Photo
from fedscope.data.reading.shards import HubSource
from fedscope.data.sets import own_data
from fedscope.data.sets.builtin import load_digits, load_synthetic
from fedscope.errors import UserError, suggestion
from fedscope.own import DATASETS as REGISTERED
from fedscope.own import is_own, registered


def _cropped(mean: tuple[float, ...], std: tuple[float, ...]) -> Pipeline:
    return Pipeline(mean, std, flip=0.5, crop=1.0, padding=4, padding_value="black")


def _man(mean: tuple[float, ...], std: tuple[float, ...]) -> Pipeline:
    return Pipeline(mean, std, flip=0.5, crop=0.5, padding=4, padding_value="mean")


_CIFAR10 = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
_CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_CIFAR10_ROUNDED = (0.4914, 0.4822, 0.4465), (0.2470, 0.2434, 0.2616)  # of FedGloSS' program
_CIFAR10_USUAL = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of FedSAM's
_CIFAR100_USUAL = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)  # of FedSAM's, and of MAN's
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_UNIT = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
_FEDBN = {"fedbn": Pipeline(*_UNIT, photo=Photo(flip=0.5, rotation=30)), "none": Pipeline(*_UNIT)}

_TEN_DIGITS = tuple(map(str, range(10)))
_OFFICE = (
    "back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
    "projector",
)  # fmt: skip
_DOMAINNET = (
    "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass",
    "zebra",
)  # fmt: skip
_SHARDS = (
    "NAME/train-*.parquet and NAME/test-*.parquet as on the hub, or NAME/train/CLASS/* and NAME/test/CLASS/*"
)

_CIFAR_10 = DatasetRecord(
    name="cifar10",
    title="32-pixel photographs of ten kinds of things",
    classes=10,
    channels=3,
    side=32,
    expected={"train": 50_000, "test": 10_000},
    pipelines={
        "fedalign": _cropped(*_CIFAR10),
        "man": _man((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        "fedasam": _cropped(*_CIFAR10_USUAL),
        "fedgloss": _cropped(*_CIFAR10_ROUNDED),
        "fedgloss_measured": Pipeline(*_CIFAR100),  # the two sets' constants are swapped there
        "none": Pipeline(*_CIFAR10),
    },
    model="convnet_cifar",
    hub=HubSource("uoft-cs/cifar10", image="img"),
    source="fetched from the hub (uoft-cs/cifar10), or https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated; cite Krizhevsky 2009",
    layout=_SHARDS.replace("NAME", "cifar10"),
)
_DOMAIN_NET = DatasetRecord(
    name="domainnet",
    title="ten of DomainNet's classes in six domains, 5 % of the shortest list",
    classes=10,
    channels=3,
    side=256,
    expected={"train": 630, "validation": 630},
    pipelines=_FEDBN,
    model="alexnet_bn",
    hub=HubSource("wltjr1007/DomainNet", domain="domain"),
    domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    names=_DOMAINNET,
    rule=rules.domainnet,
    decode="squared",
    source="fetched from the hub (wltjr1007/DomainNet), or https://ai.bu.edu/M3SDA (cleaned, with lists)",
    licence="fair use of images from the web, for research; cite Peng et al. 2019",
    layout="domainnet/DOMAIN/CLASS/* with domainnet/DOMAIN_train.txt and DOMAIN_test.txt, or hub shards",
)
_RECORDS = (
    DatasetRecord(
        name="digits",
        title="scikit-learn's bundled handwritten digits",
        classes=10,
        channels=1,
        side=8,
        expected={"train": 1437, "test": 360},
        pipelines={"none": Pipeline((0.3054,), (0.3760,))},
        model="resnet_digits",
        source="bundled with scikit-learn",
        licence="CC BY 4.0 (UCI optical recognition of handwritten digits)",
        built_in=load_digits,
    ),
    DatasetRecord(
        name="synthetic",
        title="generated patterns under noise, for many clients",
        classes=10,
        channels=1,
        side=8,
        expected={"train": 100_000, "test": 10_000},
        pipelines={"none": Pipeline((0.5,), (0.25,))},
        model="mlp_digits",
        source="generated",
        licence="none needed",
        built_in=load_synthetic,
    ),
    _CIFAR_10,
    replace(
        _CIFAR_10,
        name="cifar100",
        title="32-pixel photographs of a hundred kinds of things",
        classes=100,
        pipelines={
            "fedalign": _cropped(*_CIFAR100),
            "man": _man(*_CIFAR100_USUAL),
            "fedasam": _cropped(*_CIFAR100_USUAL),
            "fedgloss": _cropped(*_CIFAR100),
            "fedgloss_measured": Pipeline(*_CIFAR10_ROUNDED),
            "none": Pipeline(*_CIFAR100),
        },
        hub=HubSource("uoft-cs/cifar100", image="img", label="fine_label"),
        source=_CIFAR_10.source.replace("cifar10)", "cifar100)"),
        layout=_SHARDS.replace("NAME", "cifar100"),
    ),
    replace(
        _CIFAR_10,
        name="imbalanced_cifar10",
        title="cifar10, for clients with a long tail of classes (the partition makes it)",
        model="resnet20",
        stored_as="cifar10",
    ),
    DatasetRecord(
        name="tinyimagenet",
        title="64-pixel photographs of 200 of ImageNet's classes; the test is the official validation",
        classes=200,
        channels=3,
        side=64,
        expected={"train": 100_000, "test": 10_000},
        pipelines={"man": _man(*_IMAGENET), "none": Pipeline(*_IMAGENET)},
        model="convnet_tiny_gn",
        hub=HubSource("zh-plus/tiny-imagenet", splits={"train": "train", "test": "valid"}),
        source="fetched from the hub (zh-plus/tiny-imagenet), or http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence="ImageNet's terms: research and teaching, not commercial",
        layout="tinyimagenet/train/WNID/images/* and tinyimagenet/val/images/* with val/val_annotations.txt, "
        "or the hub's train-*.parquet and valid-*.parquet",
    ),
    DatasetRecord(
        name="imagenet200",
        title="photographs of 200 drawn classes of ImageNet-1k, 500 of each, decoded as they are needed",
        classes=200,
        channels=3,
        side=224,
        expected={"train": 100_000, "test": 10_000},
        pipelines={
            "fedalign": Pipeline(*_IMAGENET, photo=Photo(flip=0.5, jitter=0.4, resized_crop=True)),
            "none": Pipeline(*_IMAGENET),
        },
        model="resnet18",
        hub=HubSource("ILSVRC/imagenet-1k", splits={"train": "train", "test": "validation"}),
        rule=rules.imagenet200,
        decode="files",
        source="ILSVRC/imagenet-1k on the hub once its terms are accepted and `hf auth login` is done "
        "(about 150 GB), or https://www.image-net.org",
        licence="ImageNet's terms: research and teaching, not commercial",
        layout="imagenet200/train/WNID/* and imagenet200/val/WNID/* (or val/* with val_labels.txt or "
        "LOC_val_solution.csv), or the hub's train-*.parquet and validation-*.parquet",
    ),
    DatasetRecord(
        name="digits5",
        title="digits of five sources, 743 of each to train on",
        classes=10,
        channels=3,
        side=28,
        expected={"train": 3715, "test": 147_509},
        pipelines={"none": Pipeline((0.5,) * 3, (0.5,) * 3)},
        model="digit_cnn6",
        domain_hubs={
            "mnist": HubSource("ylecun/mnist"),
            "svhn": HubSource("ufldl-stanford/svhn", config="cropped_digits"),
            "usps": HubSource("flwrlabs/usps"),
            "mnistm": HubSource("Mike0307/MNIST-M"),
        },
        domains=("mnist", "svhn", "usps", "synthdigits", "mnistm"),
        names=_TEN_DIGITS,
        rule=rules.digits5,
        decode="squared",
        source="mnist, svhn, usps and mnistm are fetched from the hub where they are not in the folder; "
        "synthdigits comes with Ganin & Lempitsky 2015 and must be there as images",
        licence="MNIST CC BY-SA 3.0, SVHN not commercial, the others none stated; cite each",
        layout="digits5/DOMAIN/DIGIT/*, or digits5/DOMAIN/train-*.parquet and test-*.parquet as on the hub",
    ),
    DatasetRecord(
        name="office_caltech",
        title="ten kinds of office things in four domains",
        classes=10,
        channels=3,
        side=256,
        expected={"train": 248, "test": 508, "validation": 200},
        pipelines=_FEDBN,
        model="alexnet_bn",
        domains=("amazon", "caltech", "dslr", "webcam"),
        names=_OFFICE,
        rule=rules.office_caltech,
        decode="squared",
        source="Office-Caltech10 of Gong et al. 2012, as images",
        licence="none stated; cite Saenko et al. 2010, Griffin et al. 2007 and Gong et al. 2012",
        layout="office_caltech/DOMAIN/CLASS/*, with office_caltech/DOMAIN_train.txt and DOMAIN_test.txt if "
        "there are such lists",
    ),
    _DOMAIN_NET,
    replace(
        _DOMAIN_NET,
        name="domainnet_concept_shift",
        title="domainnet, for clients whose labels change from round to round",
        pipelines={
            **_FEDBN,
            "small": Pipeline(*_UNIT, photo=Photo(flip=0.5, rotation=30), side=28),  # for digit_cnn6
        },
        stored_as="domainnet",
    ),
)
DATASETS = {record.name: record for record in _RECORDS}
NAMES = tuple(DATASETS)


def record(name: str) -> DatasetRecord:
    if name not in DATASETS:
        known = (*NAMES, *registered(REGISTERED))
        hint = suggestion(name, known) or f"; choose one of {', '.join(known)}, or MODULE:FACTORY"
        raise UserError(f"unknown dataset {name!r}{hint}")
    return DATASETS[name]


def load(
    name: str,
    data_dir: Path | None = None,
    test_data: str | None = None,
    model: str | None = None,
    loss: str | None = None,
) -> Dataset:
    """Return the data set ``name``, or the user's own that MODULE:FACTORY makes, with their ``test_data``.

    ``data_dir`` is as in :func:`fedscope.data.loading.loading.load`. Text and images in files, ``text:PATH``
    and ``images:PATH``, are prepared as the pretrained ``model`` takes them. ``loss`` is the user's own.

    Raises:
        UserError: the name is unknown, or its files cannot be read, or a factory fails.
    """
    if is_own(name):
        return own_data.load(name, test_data, model, loss)
    return load_record(record(name), data_dir).with_loss(loss)


def pipeline(dataset: str, name: str | None = None) -> tuple[str, Pipeline]:
    """Return (name, pipeline) of a data set; without a name, its default.

    Raises:
        UserError: the data set or the pipeline is unknown.
    """
    if is_own(dataset):
        if name not in (None, "none"):
            raise UserError(f"{dataset} is used as it is; prepare it there, and leave --augmentation out")
        return "none", AS_THEY_ARE
    choices = record(dataset).pipelines
    name = name or next(iter(choices))
    if name not in choices:
        raise UserError(f"unknown augmentation {name!r} for {dataset}; choose one of {', '.join(choices)}")
    return name, choices[name]
