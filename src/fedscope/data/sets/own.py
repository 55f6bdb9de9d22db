"""Data of the user's own, as MODULE:FACTORY returns them: one data set, or one for each client.

A data set is a pair (inputs, targets) of tensors or arrays, a ``torch.utils.data.Dataset`` of such samples, a
list of them, or a ``DataLoader``. Any other iterable yields one of these per client. A dict has them under
``train`` and ``test``. Inputs are used as they are: what the network gets is theirs to prepare.
"""

from collections.abc import Iterable, Mapping, Sized
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedscope import pretrained
from fedscope.data.loading.datasets import Dataset, Split, fingerprint
from fedscope.data.processed import load as processed
from fedscope.errors import UserError
from fedscope.factories import called, reason
from fedscope.own import digest, is_own
from fedscope.streams import seeded, torch_stream

HELD_OUT = 0.2  # of each client's samples, or of all, where there are no test data


def load(reference: str, test: str | None = None, model: str | None = None) -> Dataset:
    """Return the data set that ``reference`` makes; ``test`` makes the samples to evaluate on.

    Text and images in files are prepared by the tokenizer or image processor of the pretrained ``model``.

    Without test data a part of the training data is held out, the same in every run. The factories draw from
    seeded global generators.

    Raises:
        UserError: a factory fails, or returns no classified samples.
    """
    source = source_of(reference, test)
    if pretrained.is_data(reference):
        return _processed(reference, test, model, source)
    return _loaded(reference, test, source)


def forget() -> None:
    """Forget the data that factories made: called again, they may make others from what they read."""
    _loaded.cache_clear()


@lru_cache(maxsize=4)
def _processed(reference: str, test: str | None, model: str | None, _source: str) -> Dataset:
    train, held, names = processed.load(reference, test, model)
    note = ""
    if held is None:
        train, held = _divided(train)
        note = _held_out(train)
    return Dataset(reference, names, train, held, fingerprint(train, held), note)


def _held_out(train: Split) -> str:
    share = "each client's samples" if train.clients is not None else "the samples"
    return f"{HELD_OUT:.0%} of {share} are held out to evaluate on; --test-data names others"


@lru_cache(maxsize=4)
def _loaded(reference: str, test: str | None, _source: str) -> Dataset:
    made = _made(reference, "--data")
    train, held = _train_and_test(made, reference, "--data")
    if test:
        held = _train_and_test(_made(test, "--test-data"), test, "--test-data")[0]
    note = ""
    if held is None:
        train, held = _divided(train)
        note = _held_out(train)
    if _kind(held) != _kind(train):
        raise UserError(f"{reference}: test inputs are {_kind(held)}, training inputs {_kind(train)}")
    held = Split(held.images, held.labels)
    classes = 1 + int(torch.cat([train.labels, held.labels]).max())
    names = tuple(map(str, range(classes)))
    return Dataset(reference, names, train, held, fingerprint(train, held), note)


def clients(reference: str, test: str | None = None) -> int | None:
    """Return over how many clients the data come divided; None if they are one data set.

    Raises:
        UserError: as :func:`load`.
    """
    if pretrained.is_data(reference):
        return None
    owners = load(reference, test).train.clients
    return None if owners is None else 1 + int(owners.max())


def source_of(reference: str, test: str | None = None) -> str:
    """Return the SHA-256 of the files that make data of the user's own; "" of a data set of the catalogue."""
    return digest(reference, *([test] if test else [])) if is_own(reference) else ""


def _made(reference: str, flag: str) -> Any:
    with seeded(0):
        made = called(reference, flag)
        if isinstance(made, Mapping):
            return made
        return _parts(made, reference, flag)


def _train_and_test(made: Any, reference: str, flag: str) -> tuple[Split, Split | None]:
    if not isinstance(made, Mapping):
        return _joined(made), None
    if "train" not in made or made.keys() - {"train", "test"}:
        raise UserError(f"{flag} {reference} returned a dict with {sorted(made)}; it takes train, and test")
    with seeded(0):
        both = [_joined(_parts(made[key], reference, flag)) for key in ("train", "test") if key in made]
    return both[0], both[1] if len(both) > 1 else None


def _parts(made: Any, reference: str, flag: str) -> Split | list[Split]:
    """Return what a factory made: one data set, or a list of the clients'."""
    try:
        one = _one(made)
        if one is not None:
            return _checked(*one)
        found = [_one(part) for part in made] if isinstance(made, Iterable) else []
        if not found or any(part is None for part in found):
            raise TypeError(
                f"{type(made).__name__} is no (inputs, targets), torch Dataset or DataLoader, and yields none"
            )
        return [_checked(*part) for part in found if part is not None]
    except Exception as error:  # whatever the user's data raise
        raise UserError(f"{flag} {reference}: {reason(error)}") from error


def _one(made: Any) -> tuple[Tensor, Tensor] | None:
    """Return (inputs, targets) of one data set, or nothing if this is none."""
    if _is_pair(made):
        inputs, targets = (torch.as_tensor(part) for part in made)
        return (inputs, targets) if targets.ndim else None
    if isinstance(made, torch.utils.data.DataLoader):
        batches = [_pair(batch) for batch in made]
        return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    if isinstance(made, torch.utils.data.Dataset) or _are_samples(made):
        size = len(made) if isinstance(made, Sized) else 0
        samples = [_pair(made[row]) for row in range(size)]
        return torch.stack([x for x, _ in samples]), torch.stack([y.reshape(()) for _, y in samples])
    return None


def _is_pair(made: Any) -> bool:
    return (
        isinstance(made, tuple | list)
        and len(made) == 2
        and all(isinstance(part, Tensor | np.ndarray) for part in made)
    )


def _are_samples(made: Any) -> bool:
    """Say whether this is a list of (input, class)."""
    first = made[0] if isinstance(made, list) and made else None
    return isinstance(first, tuple) and len(first) == 2 and np.ndim(first[1]) == 0 and not _nested(first[1])


def _nested(part: Any) -> bool:
    return isinstance(part, Iterable) and not isinstance(part, Tensor | np.ndarray)


def _pair(sample: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise TypeError(f"a sample or batch is a pair (inputs, targets), not {type(sample).__name__}")
    return torch.as_tensor(sample[0]), torch.as_tensor(sample[1])


def _checked(inputs: Tensor, targets: Tensor) -> Split:
    """Return the samples in the dtypes that training takes.

    Raises:
        TypeError, ValueError: they are no inputs with a class each.
    """
    inputs, targets = inputs.detach().cpu(), targets.detach().cpu()
    if not len(inputs) or len(inputs) != len(targets):
        raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets")
    if targets.ndim != 1 or targets.is_floating_point() or bool((targets < 0).any()):
        shape = tuple(targets.shape)
        raise ValueError(f"targets are class numbers from 0, one per sample, not {targets.dtype} {shape}")
    if inputs.dtype in (torch.uint8, torch.bool) or inputs.is_complex():
        raise TypeError(f"inputs are {inputs.dtype}; the network gets them as they are: make them floats")
    kind = torch.float32 if inputs.is_floating_point() else torch.int64
    return Split(inputs.to(kind).contiguous(), targets.long())


def _joined(parts: Split | list[Split]) -> Split:
    """Return the clients' samples one after the other, with whose each is."""
    if isinstance(parts, Split):
        return parts
    owners = torch.cat([torch.full((len(part),), client) for client, part in enumerate(parts)])
    try:
        images = torch.cat([part.images for part in parts])  # type: ignore[misc]
    except RuntimeError as error:
        raise UserError(f"the clients' inputs are not of one kind: {error}") from error
    return Split(images, torch.cat([part.labels for part in parts]), clients=owners)


def _divided(split: Split) -> tuple[Split, Split]:
    """Return the samples without, and those of, the part that is held out: HELD_OUT of every client's."""
    owners = torch.zeros(len(split), dtype=torch.int64) if split.clients is None else split.clients
    held = torch.zeros(len(split), dtype=torch.bool)
    for client in range(1 + int(owners.max())):
        rows = (owners == client).nonzero()[:, 0]
        order = torch.randperm(len(rows), generator=torch_stream(0, "held out", 0, client))
        held[rows[order[: int(HELD_OUT * len(rows))]]] = True
    if not held.any():
        raise UserError(f"{len(split)} samples are too few to hold some out; give others with --test-data")
    return split.take((~held).nonzero()[:, 0]), split.take(held.nonzero()[:, 0])


def _kind(split: Split) -> str:
    assert isinstance(split.images, Tensor)
    return f"{split.images.dtype} {tuple(split.images.shape[1:])}".removeprefix("torch.")
