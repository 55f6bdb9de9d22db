"""A small registry with two runs, trained through the Python face."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

import fedscope


@pytest.fixture(scope="package")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg and FedSAM on a part of the digits, as runs ``a`` and ``b``."""
    folder = tmp_path_factory.mktemp("face") / "runs"
    for name, method in (("a", "fedavg"), ("b", "fedsam")):
        fedscope.train(
            method=method, rounds=2, epochs=1, clients=3, train_samples=300, test_samples=100,
            model="mlp_digits", name=name, registry=folder, keep_every=1,
        )  # fmt: skip
    return folder


@pytest.fixture(autouse=True)
def _no_windows() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    pyplot.close("all")
