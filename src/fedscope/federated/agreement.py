"""What cannot go together: settings that make a method another one, or a number meaningless."""

from collections.abc import Sequence

from torch import nn

from fedscope.checkpoints.schema import Settings
from fedscope.data.partition import FRESH
from fedscope.errors import UserError
from fedscope.federated.method import Method


def agree(settings: Settings, method: Method, domains: Sequence[str]) -> None:
    """Refuse settings that the method, or each other, rule out; ``domains`` are the data set's.

    Raises:
        UserError: there are such settings.
    """
    for name, (value, why) in method.only.items():
        if getattr(settings, name) not in (None, value):
            raise UserError(f"{method.name} is trained with --{name.replace('_', '-')} {value}: {why}")
    if settings.stack > 1 and method.trains_alone:
        raise UserError(f"{method.name} trains its clients one by one; leave --stack out")
    if settings.compile and method.strategy:
        raise UserError(f"{method.name} runs another network in every step; leave --compile out")
    if settings.eval_drop_last and domains:
        raise UserError("a last batch is of one domain only; leave --eval-drop-last out")
    _memory(settings, method)
    _averages(settings, method)


def _memory(settings: Settings, method: Method) -> None:
    """Refuse what clients would have to remember and cannot."""
    fresh = settings.partition in FRESH
    again = f"--partition {settings.partition} has new clients in every round"
    if method.personal and fresh:
        raise UserError(f"{method.name} keeps tensors with a client, and {again}; choose another --partition")
    if method.personal and settings.memory == "reset":
        raise UserError(f"what {method.name} keeps with a client is its memory; leave --memory reset out")
    if settings.optimizer_state == "client" and (fresh or settings.memory == "reset"):
        why = again if fresh else "--memory reset takes it away"
        raise UserError(f"a client's momentum cannot be kept: {why}; use --optimizer-state round")
    if method.memory and fresh and settings.memory == "keep":
        raise UserError(
            f"{method.name} needs clients that come back, and {again}; use --memory reset to begin its "
            "memory anew each time"
        )


def _averages(settings: Settings, method: Method) -> None:
    """Refuse means of clients that have none."""
    if settings.eval_model == "cld":
        return
    fresh = settings.partition in FRESH
    if fresh or method.personal:
        why = "its clients do not come back" if fresh else "parts of it stay with clients"
        raise UserError(f"--eval-model {settings.eval_model} has no meaning here: {why}; use cld")


def check_batches(model: nn.Module, settings: Settings, sizes: Sequence[int]) -> None:
    """Refuse clients one of whose batches would be a single image that BatchNorm cannot normalise.

    Raises:
        UserError: there is such a client.
    """
    if not any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        return  # images have many positions, vectors one each
    for client, size in enumerate(sizes):
        last = size % settings.batch_size or settings.batch_size
        whole_left = settings.drop_last and size >= settings.batch_size
        if size == 1 or settings.batch_size == 1 or (last == 1 and not whole_left):
            raise UserError(
                f"the last batch of client {client}, with {size} samples, would be one image, which this "
                "network's BatchNorm cannot normalise; use another --batch-size, or --drop-last"
            )
