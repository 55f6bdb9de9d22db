"""The data sets that need no download: scikit-learn's bundled digits, and generated images."""

from importlib.metadata import version

import numpy as np
import torch

from fedscope.data.loading import array_cache
from fedscope.data.loading.datasets import Dataset, Split, fingerprint
from fedscope.extras import needed
from fedscope.storage import atomic_folder, cache_dir

TEN = tuple(map(str, range(10)))


def load_digits() -> Dataset:
    """Return scikit-learn's 1,797 bundled 8×8 digits, split 80/20 and stratified by a fixed draw.

    The sixteen grey levels are spread over 0…255. Source: UCI optical recognition of handwritten digits.
    Kept in the cache, where it is writable, because importing scikit-learn takes longer than many a run.
    """
    with needed("train", "the data set digits"):
        folder = cache_dir() / f"digits-{version('scikit-learn')}"
    if not array_cache.is_complete(folder):
        train, test = _bundled_digits()
        try:
            with atomic_folder(folder, below=cache_dir()) as temporary:
                for name, split in (("train", train), ("test", test)):
                    array_cache.write_split(temporary, name, split)
                array_cache.write_meta(temporary, {"train": train, "test": test}, TEN)
        except OSError:
            return Dataset("digits", TEN, train, test, fingerprint(train, test))
    return array_cache.read("digits", folder)


def _bundled_digits() -> tuple[Split, Split]:
    with needed("train", "the data set digits"):
        from sklearn.datasets import load_digits as bundled
        from sklearn.model_selection import train_test_split

    raw = bundled()
    images = torch.from_numpy(np.rint(raw.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    rows = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=raw.target, random_state=0)
    train, test = (Split(images[part], labels[part]) for part in map(torch.from_numpy, rows))
    return train, test


def load_synthetic(train: int = 100_000, test: int = 10_000) -> Dataset:
    """Return 8×8 images of ten random patterns under noise: as many samples as many clients need, at once.

    Every image is its class's pattern, drawn once, plus Gaussian noise of twice the patterns' spread, in grey
    levels around 128; classes follow each other in turn. The draw is fixed.
    """
    generator = np.random.default_rng(0)
    patterns = generator.normal(size=(10, 1, 8, 8)).astype(np.float32)

    def draw(count: int) -> Split:
        labels = np.arange(count, dtype=np.int64) % 10
        noise = generator.standard_normal((count, 1, 8, 8), dtype=np.float32)
        images = np.clip(128 + 24 * (patterns[labels] + 2 * noise), 0, 255).astype(np.uint8)
        return Split(torch.from_numpy(images), torch.from_numpy(labels))

    splits = draw(train), draw(test)
    return Dataset("synthetic", TEN, *splits, fingerprint(*splits))
