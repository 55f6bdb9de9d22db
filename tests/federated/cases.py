"""What the tests of methods share: a step, a pass, the end of a client's training, with named parts."""

from typing import Any

import torch
from torch import Tensor, nn

from fedscope.federated.methods import parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.network import Network
from fedscope.federated.record.options import Value
from fedscope.federated.record.tasks import Client
from fedscope.federated.record.views import Batch, Finish, Pass, ServerStep, Stack, Term


def options(method: str, **given: Value) -> dict[str, Value]:
    """Return the defaults of ``method``, with ``man_zeta=1`` standing for ``man.zeta``."""
    return dict(parse(method).values({}, "paper")) | {k.replace("_", ".", 1): v for k, v in given.items()}


def vector(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


def step(method: str, w: Tensor, anchor: Tensor, parts: dict[str, Any] | None = None, **given: Value) -> Term:
    content: dict[str, Any] = {"relative_size": torch.ones(()), "lr": torch.tensor(0.1)} | (parts or {})
    return Term(w, anchor, options(method, **given), **content)


def stacked(term: Term, last_gradient: Tensor | None = None) -> Stack:
    """Return what a correction sees where a term sees ``term``; it may have leading dimensions of clients."""
    return Stack(**vars(term), last_gradient=last_gradient)


def passing(method: str, network: Any = None, **parts: Any) -> Pass:
    """Return a forward pass; ``given`` among ``parts`` are options."""
    content: dict[str, Any] = {
        "batch": Batch(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64)),
        "logits": torch.zeros(1, 1),
        "loss": torch.ones(()),
        "taps": {},
        "drawn": {},
        "network": network,
        "start": torch.zeros(0),
        "memory": {},
        "took_part_before": torch.ones(()),
        "options": options(method, **parts.pop("given", {})),
    }
    return Pass(**(content | parts))


def ending(method: str, parameters: Tensor, anchor: Tensor, **parts: Any) -> Finish:
    """Return the end of a training; vectors are (K, P)."""

    def nobody(_row: int) -> Client:
        raise AssertionError("no data in this test")

    content: dict[str, Any] = {
        "memory": {},
        "received": {},
        "options": options(method, **parts.pop("given", {})),
        "relative_size": torch.ones(len(parameters), 1),
        "weight": 1.0,
        "steps": 1,
        "nominal_steps": 1,
        "lr": 1.0,
        "initial_lr": 1.0,
        "momentum": 0.0,
        "nesterov": False,
        "batch_size": 1,
        "values": parameters,
        "start": anchor,
        "network": Network(FlatModel(nn.Linear(1, 1)), bf16=False),
        "client": nobody,
    }
    return Finish(parameters=parameters, anchor=anchor, **(content | parts))


def serving(method: str, mean: Tensor, anchor: Tensor, state: dict[str, Tensor], **parts: Any) -> ServerStep:
    given = parts.pop("given", {})
    content: dict[str, Any] = {"participants": 1, "clients": 1, "kept": anchor} | parts
    return ServerStep(mean, anchor, state, options=options(method, **given), **content)
