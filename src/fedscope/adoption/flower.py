"""Flower (Beutel et al. 2020): every round of an app in the registry, its strategy unchanged.

    strategy = watch(FedAvg(...), "my-run", model="mlp_digits", dataset="digits")

The strategy's own methods are called with their own arguments, and their results are passed on; their arrays
and metrics are recorded. Both of Flower's interfaces are understood: strategies of messages
(``flwr.serverapp.strategy``) and of ``FitRes`` (``flwr.server.strategy``).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar, Unpack

import torch
from torch import Tensor, nn

from fedscope.adoption.recorder import Federated, Recorder

S = TypeVar("S")
Hook = Callable[..., Any]


def watch(strategy: S, name: str, *, model: str | nn.Module, dataset: str, **about: Unpack[Federated]) -> S:
    """Return the same strategy, whose rounds are registered from now on.

    A client is numbered by ``partition-id`` in its metrics. Without one, or where two nodes of a round send
    the same, it is numbered in the order of appearance, and its model is not paired with its own data.

    Args:
        strategy: any, of either interface.
        name: of the run; ``NAME-2`` and so on where it is taken.
        model: a network of the catalogue by name, ``MODULE:FACTORY``, or the app's own module. Arrays are
            found by name, nameless ones by their order, which must be that of ``state_dict()``.
        dataset: of the catalogue; or a name for the app's own data.
        **about: see :class:`fedscope.adoption.recorder.Federated`. After ``rounds`` a ``FitRes`` strategy is
            finished, a strategy of messages finishes itself; ``method`` is by default the strategy's class.

    Raises:
        UserError: no such network or data; and, in the first round, arrays that do not fit the network.
    """
    about["method"] = about.get("method") or type(strategy).__name__
    watching = _Watch(Recorder(name, model=model, dataset=dataset, source="Flower", **about))
    for hook in ("start", "aggregate_train", "aggregate_evaluate", "aggregate_fit", "evaluate"):
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
        if evaluate := given.arguments.get("evaluate_fn"):
            given.arguments["evaluate_fn"] = partial(self.evaluate, evaluate)
        result = inner(*given.args, **given.kwargs)
        self.recorder.finish()
        return result

    def aggregate_train(self, inner: Hook, server_round: int, replies: Iterable[Any]) -> Any:
        replies = list(replies)
        good = sorted((r for r in replies if r.has_content()), key=lambda r: r.metadata.src_node_id)
        for reply in good if self.recorder.clients != "none" else ():
            numbers = {k: v for record in reply.content.metric_records.values() for k, v in record.items()}
            node = reply.metadata.src_node_id
            self._upload(server_round, node, _arrays(reply.content), numbers.get("num-examples"), numbers)
        arrays, metrics = result = inner(server_round, replies)
        if arrays is not None:
            self._global(server_round, arrays.to_torch_state_dict(), metrics)
        return result

    def aggregate_fit(self, inner: Hook, server_round: int, results: Any, failures: Any) -> Any:
        for client, answer in (
            sorted(results, key=lambda r: r[0].cid) if self.recorder.clients != "none" else ()
        ):
            state = _ndarrays(answer.parameters)
            self._upload(server_round, client.cid, state, answer.num_examples, answer.metrics or {})
        parameters, metrics = result = inner(server_round, results, failures)
        if parameters is not None:
            self._global(server_round, _ndarrays(parameters), metrics)
            if server_round == self.recorder.rounds:
                self.recorder.finish()
        return result

    def aggregate_evaluate(self, inner: Hook, server_round: int, *args: Any) -> Any:
        result = inner(server_round, *args)
        loss, found = result if isinstance(result, tuple) else (None, result)
        self.recorder.note(server_round, {"loss": loss, **dict(found or {})})
        return result

    evaluate = aggregate_evaluate  # of the server's own model

    def _upload(
        self,
        round: int,
        node: object,
        tensors: Mapping[str, Tensor],
        samples: object,
        metrics: Mapping[str, Any],
    ) -> None:
        count = int(samples) if isinstance(samples, int | float) and samples >= 1 else None
        self.recorder.upload_by(
            round, node, metrics.get("partition-id"), tensors,
            told="partition-id", order="nodes", samples=count,
        )  # fmt: skip

    def _global(self, round: int, tensors: Mapping[str, Tensor], metrics: Any) -> None:
        found = dict(metrics or {})
        loss = found.get("train_loss", found.get("train-loss", found.get("loss")))
        self.recorder.add(round, tensors, {"train_loss": loss})


def _arrays(content: Any) -> dict[str, Tensor]:
    records = content.array_records
    record = records["arrays"] if "arrays" in records else next(iter(records.values()))
    tensors: dict[str, Tensor] = record.to_torch_state_dict()
    return tensors


def _ndarrays(parameters: Any) -> dict[str, Tensor]:
    from flwr.common import parameters_to_ndarrays

    return {
        str(place): torch.from_numpy(array) for place, array in enumerate(parameters_to_ndarrays(parameters))
    }
