"""A training loop of one's own: its rounds and clients in the registry, a line for each.

with RegisterRounds("mine", model=network, dataset="mine", clients="last") as register:
    for _ in range(rounds):
        ...
        register.round(network, {"accuracy": accuracy}, clients=uploads)
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from torch import Tensor, nn

from fedscope.adoption.recorder import Federated, Recorder

State = nn.Module | Mapping[str, Tensor]


class RegisterRounds(Recorder):
    """Registers the rounds of a loop, with the arguments of
    :class:`fedscope.adoption.recorder.Recorder`.

    As a context manager it finishes the run at the end; after an exception the run stays, as unfinished.
    """

    def __init__(
        self, name: str, *, model: str | nn.Module, dataset: str, **about: Unpack[Federated]
    ) -> None:
        super().__init__(name, model=model, dataset=dataset, source="a training loop", **about)

    def round(
        self,
        model: State,
        metrics: Mapping[str, Any] | None = None,
        *,
        clients: Mapping[int, State] | None = None,
        samples: Mapping[int, int] | None = None,
    ) -> None:
        """Register the next round.

        Args:
            model: the global model after it, or its state.
            metrics: ``accuracy``, ``loss``, ``train_loss``, those that are known.
            clients: client → its model, or state, at the end of its local training.
            samples: client → on how many it trained, where that is known.

        Raises:
            UserError: tensors that are not the network's, or a score that is no number.
        """
        number, counts = self.newest + 1, samples or {}
        for client, upload in sorted((clients or {}).items()):
            self.upload(number, client, _state(upload), samples=counts.get(client))
        self.add(number, _state(model), metrics or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()


def _state(model: State) -> Mapping[str, Tensor]:
    return model.state_dict() if isinstance(model, nn.Module) else model
