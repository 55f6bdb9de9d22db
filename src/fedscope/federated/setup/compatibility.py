"""Settings that exclude each other: they would change the method, or make a number meaningless."""

from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager

import torch
from torch import nn

from fedscope.checkpoints.file.settings import Settings
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Dataset, Split
from fedscope.data.partition.draw_partition import FRESH
from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.federated.record.network import in_mode
from fedscope.own import is_own
from fedscope.streams import seeded


def check_compatible(settings: Settings, method: Method, domains: Sequence[str]) -> None:
    for required in method.required_settings:
        free = getattr(settings, required.setting) in (None, required.value)
        if not free and required.holds(settings.options):
            option = "" if required.unless is None else ", or --set {}={}".format(*required.unless)
            raise UserError(f"{method.name} is trained with {required.flag}{option}: {required.why}")
    if settings.stack > 1 and method.trains_alone:
        raise UserError(f"{method.name} trains its clients one by one; leave --stack out")
    if settings.compile and method.forward_context:
        raise UserError(f"{method.name} runs another network in every step; leave --compile out")
    if settings.eval_drop_last and domains:
        raise UserError("a last batch is of one domain only; leave --eval-drop-last out")
    _memory(settings, method)
    _averages(settings, method)


def check_loss(settings: Settings, dataset: Dataset) -> None:
    if dataset.train.loss is None:
        return
    if dataset.domains:
        raise UserError(
            f"--loss is a mean over samples, and {dataset.name} is evaluated by domain; leave it out"
        )
    if dataset.train.targets is None:
        return
    if not is_own(str(settings.model)):
        raise UserError(
            f"{settings.model} is a classifier, and the targets are no classes; give --model MODULE:FACTORY"
        )
    if settings.target is not None:
        raise UserError("--target is an accuracy, and without classes there is none; leave it out")


def _memory(settings: Settings, method: Method) -> None:
    fresh = settings.partition in FRESH
    again = f"--partition {settings.partition} has new clients in every round"
    if method.personal and fresh:
        raise UserError(f"{method.name} keeps tensors with a client, and {again}; choose another --partition")
    if method.personal and settings.memory == "reset":
        raise UserError(f"what {method.name} keeps with a client is its memory; leave --memory reset out")
    if settings.optimizer_state == "client" and (fresh or settings.memory == "reset"):
        why = again if fresh else "--memory reset takes it away"
        raise UserError(f"a client's optimizer state cannot be kept: {why}; use --optimizer-state round")
    if method.memory and fresh and settings.memory == "keep":
        raise UserError(
            f"{method.name} needs clients that come back, and {again}; use --memory reset to begin its "
            "memory anew each time"
        )


def _averages(settings: Settings, method: Method) -> None:
    if settings.eval_model == "cld":
        return
    fresh = settings.partition in FRESH
    if fresh or method.personal:
        why = "its clients do not come back" if fresh else "parts of it stay with clients"
        raise UserError(f"--eval-model {settings.eval_model} has no meaning here: {why}; use cld")


def check_batches(
    model: nn.Module,
    method: Method,
    settings: Settings,
    rows: Sequence[Sized],
    split: Split,
    pipeline: Pipeline,
) -> None:
    """Refuse clients (each with its ``rows``) with a batch of a single image on which no step can be taken.

    Where there is one, the network is tried on the first image of ``split``, and stays as it was: BatchNorm
    refuses a single value per channel, as of a vector or of a feature map of one pixel.
    """
    sizes = list(map(len, rows))
    client = next((client for client, size in enumerate(sizes) if _has_single(settings, size)), None)
    if client is None:
        return
    trained = next(p for p in model.parameters() if p.requires_grad)
    image = pipeline.test(split.images, torch.zeros(1, dtype=torch.int64)).to(trained.device)
    image = image.to(trained.dtype) if image.is_floating_point() else image  # tokens are whole numbers
    try:
        with trying(model), torch.no_grad():
            model(image)
            for alone in method.single_image_checks:
                alone(model, image, settings.options)
    except ValueError as error:
        raise UserError(
            f"the last batch of client {client}, with {sizes[client]} samples, would be one image, on which "
            f"no step can be taken ({error}); use {_mend(settings, sizes[client])}"
        ) from error


def _has_single(settings: Settings, size: int) -> bool:
    last = size % settings.batch_size or settings.batch_size
    steps = settings.local_steps or settings.steps_limit  # of the round, or of each epoch
    if steps and steps * settings.batch_size < size:
        return settings.batch_size == 1  # the last batch is not reached
    whole_left = settings.drop_last and size >= settings.batch_size
    return size == 1 or settings.batch_size == 1 or (last == 1 and not whole_left)


def _mend(settings: Settings, size: int) -> str:
    if size == 1:
        return "fewer --clients or another --partition, so that each has more samples"
    return "a larger --batch-size" if settings.batch_size == 1 else "--drop-last, or another --batch-size"


@contextmanager
def trying(model: nn.Module) -> Iterator[None]:
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with in_mode(model, train=True), seeded(0):
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
