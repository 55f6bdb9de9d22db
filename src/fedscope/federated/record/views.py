"""The arguments of a method's functions: batch, forward pass, local step, end of training, server step.

P is the number of trainable parameters, P+Q that of all floating numbers of the network, K that of clients
in a stack.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedscope.federated.record.network import Network
from fedscope.federated.record.options import Values
from fedscope.federated.record.tasks import Client

Draws = Mapping[str, Any]
NOBODY = torch.zeros(0)
Tensors = Callable[[Tensor], dict[str, Tensor]]
"""Gives the parameters in vectors (…, P) by their names, each a view (…, *shape)."""


def _no_tensors(_vectors: Tensor) -> dict[str, Tensor]:
    raise ValueError("there is no network here, whose parameters have names")


@dataclass(frozen=True)
class Batch:
    """A mini-batch: augmented, normalised ``images`` (B, C, H, W) and ``labels`` (B,).

    Where ``mixed_labels`` is set the loss is mix_weight·ℓ(labels) + (1 − mix_weight)·ℓ(mixed_labels).
    """

    images: Tensor
    labels: Tensor
    mixed_labels: Tensor | None = None
    mix_weight: float = 1.0


@dataclass(frozen=True)
class Pass:
    """What a term of the task loss sees: one client's forward pass."""

    batch: Batch
    logits: Tensor  # (B, C)
    loss: Tensor  # mean cross-entropy, ()
    taps: Mapping[str, list[Tensor]]  # outputs of the tapped modules, by the taps' name
    drawn: Draws
    network: Network
    start: Tensor  # (P+Q,): the model as the client received it, constant
    memory: Mapping[str, Tensor]
    took_part_before: Tensor  # (): 1 if the client took part before, else 0
    options: Values
    label_counts: Tensor = NOBODY  # (C,): of the client's rows; empty unless the method asks for them
    notes: dict[str, Tensor] = field(default_factory=dict)  # to be filled with the method's ``notes``


@dataclass(frozen=True)
class LocalStep:
    """What a local step is made of; the shapes are those of :class:`Term` or of :class:`Stack`."""

    parameters: Tensor  # w, trainable
    anchor: Tensor  # θ_t, the parameters the client received, constant
    options: Values
    relative_size: Tensor  # n_k·N/n: the client's size in units of the mean client
    lr: Tensor  # η_t, ()
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    received: Mapping[str, Tensor] = field(default_factory=dict)  # the server's broadcast, each (P,)
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # which parameters: 0 and 1, each (P,)
    took_part_last_round: Tensor | float = 0.0  # 1 if the client also took part in the round before, else 0
    first_of_epoch: bool = False
    label_counts: Tensor = NOBODY  # (C,), or (K, C): of the client's rows, where the method asks for them
    tensors: Tensors = _no_tensors


@dataclass(frozen=True)
class Term(LocalStep):
    """What a term of the parameters sees: one client. Vectors are (P,), numbers ()."""


@dataclass(frozen=True)
class Stack(LocalStep):
    """What an oracle or a correction sees: K clients side by side. Vectors are (K, P), numbers (K, 1)."""

    last_gradient: Tensor | None = None  # the step before's gradient, as clipped; zeros in the first step
    # This step's, as clipped; in ``gradient_maps`` the task loss's; None for an oracle, which is to find it.
    gradient: Tensor | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)  # the method's ``step_state``


@dataclass(frozen=True, kw_only=True)
class Finish:
    """What a client sees when its local training ends; vectors are (K, P)."""

    parameters: Tensor  # w_k
    anchor: Tensor  # θ_t
    memory: Mapping[str, Tensor]
    received: Mapping[str, Tensor]
    options: Values
    relative_size: Tensor  # (K, 1): n_k·N/n
    weight: float  # p_k before it is divided by the sum over the participants
    steps: int  # τ_k, local steps taken
    nominal_steps: int  # E·⌈(n/N)/B⌉
    lr: float  # η_t, on average over the local steps
    initial_lr: float  # that of the first round, on average too
    momentum: float
    nesterov: bool
    batch_size: int
    values: Tensor  # (K, P+Q): the whole models
    start: Tensor  # (K, P+Q): the whole models as they were received
    network: Network
    client: Callable[[int], Client]  # of a row
    state: Mapping[str, Tensor] = field(default_factory=dict)  # ``step_state`` after the last step
    label_counts: Tensor = NOBODY  # (K, C)
    tensors: Tensors = _no_tensors


@dataclass(frozen=True)
class ServerStep:
    """What the server sees when all uploads are in; vectors are (P,) in float64."""

    mean: Tensor  # Σ p_k w_k
    anchor: Tensor  # θ_t, as the clients received it
    state: Mapping[str, Tensor]
    participants: int  # m
    clients: int  # N
    options: Values
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # Σ of the uploads, and of summed memory
    weight: float = 1.0  # Σ of the participants' Finish.weight
    round: int = 1
    kept: Tensor = NOBODY  # the server's own model: the anchor, unless ``sends`` made that of it
    tensors: Tensors = _no_tensors
    lr: float = 1.0  # η_t, on average over the nominal local steps
    nominal_steps: int = 1  # E·⌈(n/N)/B⌉
    momentum: float = 0.0
    nesterov: bool = False

    def onto_kept(self, model: Tensor) -> Tensor:
        """Return a model (P,) that was made from the anchor, moved by what was sent beyond the server's own.

        No bit changes where nothing else was sent.
        """
        return torch.where(self.kept == self.anchor, model, model + (self.kept - self.anchor))


@dataclass(frozen=True)
class Averaging:
    """What an average of the server's models is made of, after every round; vectors are (P,) in float64."""

    model: Tensor  # the server's new one
    average: Tensor  # the one kept so far; before round 1 the initial model
    round: int
    options: Values


@dataclass(frozen=True)
class Sending:
    """What the model to send is made of, before every round: the same when a run is resumed."""

    kept: Tensor  # (P,) in float64: the server's own model
    state: Mapping[str, Tensor]
    options: Values
