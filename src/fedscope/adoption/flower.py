"""Flower (Beutel et al. 2020): every round of an app in the registry, its strategy unchanged.

    strategy = watch(FedAvg(...), "my-run", model="mlp_digits", dataset="digits")

The own methods of a strategy of messages (``flwr.serverapp.strategy``) are called with their own arguments,
and their results are passed on; their arrays and metrics are recorded.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, TypeVar, Unpack

from torch import Tensor, nn

from fedscope.adoption.recorder import About, Recorder
from fedscope.errors import UserError

S = TypeVar("S")
Hook = Callable[..., Any]


def watch(strategy: S, name: str, *, model: str | nn.Module, dataset: str, **about: Unpack[About]) -> S:
    """Return the same strategy, whose rounds are registered from now on.

    A client is numbered by ``partition-id`` in its metrics. Without one, or where two nodes of a round send
    the same, it is numbered in the order of appearance, and its model is not paired with its own data.

    Args:
        strategy: any that takes messages.
        name: of the run; ``NAME-2`` and so on where it is taken.
        model: a network of the catalogue by name, ``MODULE:FACTORY``, or the app's own module. Arrays are
            found by name.
        dataset: of the catalogue; or a name for the app's own data.
        **about: see :class:`fedscope.adoption.recorder.About`; ``method`` is by default the strategy's class.

    Raises:
        UserError: no strategy of messages; no such network or data; and, in the first round, arrays that do
            not fit the network.
    """
    if not hasattr(strategy, "aggregate_train"):
        raise UserError(
            f"{type(strategy).__name__} takes no messages: watch a strategy of flwr.serverapp.strategy, or "
            "give what aggregate_fit returns to fedscope.adoption.recorder.Recorder (docs/callbacks.md)"
        )
    about["method"] = about.get("method") or type(strategy).__name__
    watching = _Watch(Recorder(name, model=model, dataset=dataset, source="Flower", **about))
    for hook in ("start", "aggregate_train", "aggregate_evaluate"):
        inner = getattr(strategy, hook, None)
        if inner is not None:
            setattr(strategy, hook, wraps(inner)(partial(getattr(watching, hook), inner)))
    return strategy


class _Watch:
    """Passes what a strategy sees to a recorder. Each method stands for the strategy's method of its name."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def start(self, inner: Hook, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(inner).bind(*args, **kwargs)
        given.apply_defaults()
        self.recorder.rounds = given.arguments.get("num_rounds", self.recorder.rounds)
        if evaluate := given.arguments.get("evaluate_fn"):  # of the server's own model
            given.arguments["evaluate_fn"] = partial(self.aggregate_evaluate, evaluate)
        result = inner(*given.args, **given.kwargs)
        self.recorder.finish()
        return result

    def aggregate_train(self, inner: Hook, server_round: int, replies: Iterable[Any]) -> Any:
        replies = list(replies)
        good = sorted((r for r in replies if r.has_content()), key=lambda r: r.metadata.src_node_id)
        for reply in good if self.recorder.clients != "none" else ():
            numbers = {k: v for record in reply.content.metric_records.values() for k, v in record.items()}
            samples = numbers.get("num-examples")
            self.recorder.upload_by(
                server_round, reply.metadata.src_node_id, numbers.get("partition-id"), _arrays(reply.content),
                told="partition-id", order="nodes",
                samples=int(samples) if isinstance(samples, int | float) and samples >= 1 else None,
            )  # fmt: skip
        arrays, metrics = result = inner(server_round, replies)
        if arrays is not None:
            found = dict(metrics or {})
            loss = found.get("train_loss", found.get("train-loss", found.get("loss")))
            self.recorder.add(server_round, arrays.to_torch_state_dict(), {"train_loss": loss})
        return result

    def aggregate_evaluate(self, inner: Hook, server_round: int, *args: Any) -> Any:
        found = inner(server_round, *args)
        self.recorder.note(server_round, dict(found or {}))
        return found


def _arrays(content: Any) -> dict[str, Tensor]:
    records = content.array_records
    record = records["arrays"] if "arrays" in records else next(iter(records.values()))
    tensors: dict[str, Tensor] = record.to_torch_state_dict()
    return tensors
