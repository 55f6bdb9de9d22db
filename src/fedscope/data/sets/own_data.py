"""Data of the user's own, as MODULE:FACTORY returns them: one data set, or one for each client.

A data set is a pair (inputs, targets) of tensors or arrays, or what :mod:`fedscope.own_rows` reads. Any other
iterable yields one of these per client. A dict has them under ``train`` and ``test``. Inputs are used as they
are: what the network gets is theirs to prepare.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fedscope import pretrained
from fedscope.data.loading.datasets import Dataset, Split, fingerprint
from fedscope.data.processed import processed_splits as processed
from fedscope.data.reading.anew import Anew
from fedscope.errors import UserError
from fedscope.factories import called, imported, reason
from fedscope.own import digest, is_own
from fedscope.own_rows import DRAWN, NUMBERED, arrays, class_numbers, flows, pair, rows_of, takes_classes
from fedscope.streams import seeded, torch_stream
from fedscope.task_loss import Loss

HELD_OUT = 0.2  # of each client's samples, or of all, where there are no test data
ANEW = "inputs are drawn anew in every epoch; evaluation and analysis have one draw of them"
NONE = "there are no samples; leave it out, or give some"
_AT_ONCE = 256  # samples that are collated together


def load(
    reference: str, test: str | None = None, model: str | None = None, loss: str | None = None
) -> Dataset:
    """Return the data set that ``reference`` makes; ``test`` makes the samples to evaluate on.

    Text and images in files are prepared by the tokenizer or image processor of the pretrained ``model``.
    ``loss`` is MODULE:FUNCTION of (outputs, targets); None: cross-entropy.

    Without test data a part of the training data is held out, the same in every run. The factories draw from
    seeded global generators.
    """
    source = source_of(reference, test)
    if pretrained.is_data(reference):
        return _processed(reference, test, model, source).with_loss(loss)
    return _loaded(reference, test, loss, source + (digest(loss) if loss else ""))


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
def _loaded(reference: str, test: str | None, loss: str | None, _source: str) -> Dataset:
    function = imported(loss, "--loss") if loss else None
    parts = _made(reference, "--data", function)
    train, held = parts["train"], parts.get("test")
    if test:
        held = _made(test, "--test-data", function)["train"]
    notes = [*train.notes, *(held.notes if held else ())]
    split, rest = (train.split, held.split) if held else _divided(train.split)
    if not held:
        notes.append(_held_out(split))
    if isinstance(split.images, Anew):
        notes.insert(0, ANEW)
    if _kind(rest) != _kind(split):
        raise UserError(f"{reference}: test inputs are {_kind(rest)}, training inputs {_kind(split)}")
    rest = replace(rest, clients=None)
    classes = 1 + int(torch.cat([split.labels, rest.labels]).max())
    names = tuple(map(str, range(classes)))
    return Dataset(reference, names, split, rest, fingerprint(split, rest), "; ".join(notes))


def clients(reference: str, test: str | None = None, loss: str | None = None) -> int | None:
    """Return over how many clients the data come divided; None if they are one data set."""
    if pretrained.is_data(reference):
        return None
    owners = load(reference, test, loss=loss).train.clients
    return None if owners is None else 1 + int(owners.max())


def source_of(reference: str, test: str | None = None) -> str:
    """Return the SHA-256 of the files that make data of the user's own; "" of a data set of the catalogue."""
    return digest(reference, *([test] if test else [])) if is_own(reference) else ""


@dataclass(frozen=True)
class _Read:
    """Samples, and what is told of how they were read."""

    split: Split
    notes: tuple[str, ...] = ()


def _made(reference: str, flag: str, loss: Loss | None) -> dict[str, _Read]:
    """Return what a factory makes: ``train``, and ``test`` where there is such a part."""
    with seeded(0):
        made = called(reference, flag)
        parts = made if isinstance(made, Mapping) else {"train": made}
        if "train" not in parts or parts.keys() - {"train", "test"}:
            raise UserError(
                f"{flag} {reference} returned a dict with {sorted(parts)}; it takes train, and test"
            )
        return {name: _read(part, f"{flag} {reference}", loss) for name, part in parts.items()}


def _read(made: Any, what: str, loss: Loss | None) -> _Read:
    """Return one data set, or those of the clients together, with whose each sample is."""
    try:
        whole = _one(made, loss)
        if whole is not None:
            return whole
        clients = [_of_client(*numbered, loss) for numbered in enumerate(made)]
        if not clients:
            raise TypeError("it is empty; give one data set, or one for each client")
        return _joined(clients)
    except UserError as error:
        raise UserError(f"{what}: {error}") from error
    except Exception as error:  # whatever the user's data raise
        raise UserError(f"{what}: {reason(error)}") from error


def _of_client(number: int, made: Any, loss: Loss | None) -> _Read:
    try:
        found = _one(made, loss)
    except UserError as error:
        raise UserError(f"client {number}: {error}") from error
    if found is None:
        raise _no_data(made)
    return found


def _no_data(made: object) -> UserError:
    name = type(made).__name__
    return UserError(
        f"{name} is no (inputs, targets), torch Dataset or DataLoader, and yields none; return one"
    )


def _one(made: Any, loss: Loss | None) -> _Read | None:
    """Return the samples of one data set, or nothing if this is none."""
    whole = arrays(made)
    if whole:
        return _Read(_split(whole[0][0], whole[0][1], loss), (NUMBERED,) * whole[1])
    rows = rows_of(made, _AT_ONCE)
    if rows is None and not isinstance(made, DataLoader):
        if not isinstance(made, Iterable) or isinstance(made, str):
            raise _no_data(made)
        return None
    pairs = [rows.read(part) for part in rows.parts] if rows else [pair(batch)[0] for batch in flows(made)]
    if not pairs:
        raise UserError(NONE)
    inputs, targets = (torch.cat([_tensor(side) for side in sides]) for sides in zip(*pairs, strict=True))
    split = _split(inputs, targets, loss)
    if rows is None or rows.random == "not":
        return _Read(split, rows.notes if rows else ())
    if rows.random == "unseeded":
        return _Read(split, rows.notes)

    def again(numbers: Tensor, seeds: list[int]) -> tuple[Tensor, Tensor]:
        inputs, targets = rows.read(numbers, seeds)
        one = _split(_tensor(inputs), _tensor(targets), loss)
        return one.images, one.wanted  # type: ignore[return-value]

    every = torch.cat(rows.parts)
    places = torch.stack([torch.zeros_like(every), every], 1)
    drawn = replace(split, images=Anew(split.images, (again,), places))  # type: ignore[arg-type]
    return _Read(drawn, tuple(note for note in rows.notes if note != DRAWN))


def _tensor(side: Any) -> Tensor:
    if isinstance(side, Tensor):
        return side
    raise UserError(
        f"a sample is a pair of tensors, the network's input and its target, not {type(side).__name__}"
    )


def _split(inputs: Tensor, targets: Tensor, loss: Loss | None) -> Split:
    """Return samples in the dtypes that training takes.

    Targets of cross-entropy are class numbers; those of another loss are what it takes, and where they are no
    class numbers all samples are of one class.
    """
    inputs, targets = inputs.detach().cpu(), targets.detach().cpu()
    if not len(inputs) and not len(targets):
        raise UserError(NONE)
    if len(inputs) != len(targets):
        raise UserError(f"there are {len(inputs)} inputs and {len(targets)} targets")
    if inputs.dtype in (torch.uint8, torch.bool) or inputs.is_complex():
        raise TypeError(f"inputs are {inputs.dtype}; the network gets them as they are: make them floats")
    inputs = inputs.to(torch.float32 if inputs.is_floating_point() else torch.int64).contiguous()
    classes = loss is None or takes_classes(loss)
    labels = class_numbers(targets) if classes else targets
    if labels.ndim == 1 and not labels.is_floating_point() and bool((labels >= 0).all()):
        return Split(inputs, labels.long(), loss=loss)
    if classes:
        shape = tuple(targets.shape)
        raise UserError(
            f"targets are class numbers from 0, one per sample, not {targets.dtype} {shape}; for another "
            "task name its loss with --loss MODULE:FUNCTION"
        )
    wanted = targets.float() if targets.is_floating_point() else targets
    return Split(inputs, torch.zeros(len(inputs), dtype=torch.int64), targets=wanted, loss=loss)


def _joined(clients: list[_Read]) -> _Read:
    parts = [client.split for client in clients]
    owners = torch.cat([torch.full((len(part),), client) for client, part in enumerate(parts)])
    with_targets = [part.targets is not None for part in parts]
    if len({*with_targets}) > 1:
        raise UserError(f"targets of client {with_targets.index(False)} are class numbers, others' are not")
    try:
        images: Tensor | Anew = torch.cat([_once(part) for part in parts])
        targets = torch.cat([part.wanted for part in parts]) if with_targets[0] else None
    except RuntimeError as error:
        raise UserError(f"the clients' inputs or targets are not of one kind: {error}") from error
    if any(isinstance(part.images, Anew) for part in parts):
        stores = [part.images for part in parts]
        images = Anew.joined(stores, [part.wanted for part in parts])  # type: ignore[arg-type]
    labels = torch.cat([part.labels for part in parts])
    told = [(number, client.notes) for number, client in enumerate(clients) if client.notes]
    more = f" (and so for {len(told)} of {len(clients)} clients)" if len(told) > 1 else ""
    notes = (f"client {told[0][0]}: {'; '.join(told[0][1])}{more}",) if told else ()
    return _Read(Split(images, labels, clients=owners, targets=targets, loss=parts[0].loss), notes)


def _once(split: Split) -> Tensor:
    assert isinstance(split.images, Tensor | Anew)
    return split.images if isinstance(split.images, Tensor) else split.images.kept


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
    images = _once(split)
    return f"{images.dtype} {tuple(images.shape[1:])}".removeprefix("torch.")
