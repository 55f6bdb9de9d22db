"""A federated method is data: what it adds to the one local loop and to the server, with options and source.

Its places, in the order of a local step and of a round:

``draws``        what a step draws at random, from the method's own stream
``transform``    of the mini-batch
``strategy``     how the network is run: a context around its forward pass
``taps``         which modules' outputs the task terms read
``task``         terms of the task loss, seen wherever that is (a regulariser of activations)
``oracle``       gradient function → gradient: where the task loss is differentiated (an ascent step)
``anchored``     terms of the parameters alone (a proximal term), at the client's own point, inside the clip
``corrections``  what is added to the gradient after it was clipped, before weight decay and momentum
``displaced``    what is added to the direction after momentum
``finish``       when local training ends: new client ``memory``, and ``uploads`` beyond the model
``personal``     the tensors that stay with the client
``server``       what becomes of the mean of the uploads; ``observe``, what the server notes besides;
                 ``server_state``, the vectors both keep, and ``broadcast``, those that clients receive

Besides: ``needs`` (how the network must be built), ``checks`` (what the user must mend), ``alone`` (what a
mini-batch of one image must stand), ``masks`` (named choices of parameters), ``stale`` (whether the oracle
sees the last gradient), ``own_start`` (whether a client's memory begins at a random model), ``equal_steps``,
``weights``, ``only`` (settings it is bound to), ``clip``, ``summed``, and ``refuses`` (what it does not go
with).

Methods add: ``parse("fedprox+man")`` is the sum of two records. FedAvg is the record that adds nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import UserError, suggestion
from fedscope.federated.record.network import Network
from fedscope.federated.record.options import Option, Reading, Value, Values, Weights
from fedscope.federated.record.tasks import Client
from fedscope.federated.record.vectors import Vector

Draws = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """A mini-batch: augmented, normalised ``images`` (B, C, H, W) and ``labels`` (B,).

    Where ``others`` is set the loss is share·ℓ(labels) + (1 − share)·ℓ(others).
    """

    images: Tensor
    labels: Tensor
    others: Tensor | None = None
    share: float = 1.0


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
    seen: Tensor  # (): 1 if the client took part before, else 0
    options: Values


@dataclass(frozen=True)
class Step:
    """What a term or a correction of parameters sees of one local step.

    A term sees one client: vectors are (P,) and numbers (). An oracle or a correction sees a stack of
    clients: vectors are (K, P) and numbers (K, 1).
    """

    parameters: Tensor  # w, trainable
    anchor: Tensor  # θ_t, the parameters the client received, constant
    options: Values
    share: Tensor  # n_k·N/n: the client's size in units of the mean client
    lr: Tensor  # η_t, ()
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    received: Mapping[str, Tensor] = field(default_factory=dict)  # the server's broadcast, each (P,)
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # which parameters: 0 and 1, each (P,)
    previous: Tensor | float = 0.0  # 1 if the client also took part in the round before, else 0
    stale: Tensor | None = None  # the step before's gradient, as clipped; zeros in the first step
    first_of_epoch: bool = False


@dataclass(frozen=True, kw_only=True)
class Finish:
    """What a client sees when its local training ends; vectors are (K, P)."""

    parameters: Tensor  # w_k
    anchor: Tensor  # θ_t
    memory: Mapping[str, Tensor]
    received: Mapping[str, Tensor]
    options: Values
    share: Tensor  # (K, 1): n_k·N/n
    weight: float  # p_k before it is divided by the sum over the participants
    steps: int  # τ_k, local steps taken
    nominal_steps: int  # E·⌈(n/N)/B⌉
    lr: float  # η_t
    initial_lr: float
    momentum: float
    nesterov: bool
    batch_size: int
    values: Tensor  # (K, P+Q): the whole models
    start: Tensor  # (K, P+Q): the whole models as they were received
    network: Network
    client: Callable[[int], Client]  # of a row


@dataclass(frozen=True)
class ServerStep:
    """What the server sees when all uploads are in; vectors are (P,) in float64."""

    mean: Tensor  # Σ p_k w_k
    anchor: Tensor  # θ_t
    state: Mapping[str, Tensor]
    participants: int  # m
    clients: int  # N
    options: Values
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # Σ of the uploads, and of summed memory
    weight: float = 1.0  # Σ of the participants' Finish.weight
    round: int = 1


Draw = Callable[[torch.Generator, Values, Tensor, nn.Module], Any]  # images (B, C, H, W) of the batch
Transform = Callable[[Batch, Draws, Values], Batch]
Strategy = Callable[[nn.Module, Draws], AbstractContextManager[None]]
Names = Callable[[nn.Module, Values], list[str]]
Alone = Callable[[nn.Module, Tensor, Values], object]  # image (1, C, H, W), of a network in training mode
TaskTerm = Callable[[Pass], Tensor]
Term = Callable[[Step], Tensor]
Gradient = Callable[..., Tensor]  # (parameters (K, P), keep_buffers=False) → (K, P)
Oracle = Callable[[Gradient, Step], Tensor]
Finisher = Callable[[Finish], dict[str, Tensor]]
State = dict[str, Tensor]
Server = Callable[[ServerStep], tuple[Tensor, State]]
Observe = Callable[[ServerStep], State]


ONE = {  # the places that a sum of methods fills at most once, in words
    "transform": "a transform of the batch",
    "strategy": "a way to run the network",
    "oracle": "an ascent step",
    "own_start": "a start of a client",
    "equal_steps": "a number of local steps",
    "personal": "a choice of personal tensors",
    "server": "a server rule",
    "weights": "a weighting of the mean",
    "clip": "a clipping option",
}


@dataclass(frozen=True)
class Method:
    """A method, or a sum of methods."""

    name: str
    objective: str
    source: str
    place: str = ""  # where it enters the step, in words
    options: tuple[Option, ...] = ()
    needs: tuple[Callable[[Values], dict[str, Any]], ...] = ()  # how the network must be built
    checks: tuple[Callable[[nn.Module, Values], None], ...] = ()  # raise what the user can mend
    alone: tuple[Alone, ...] = ()  # each raises a ValueError if a step cannot be taken on one image
    draws: Mapping[str, Draw] = field(default_factory=dict)
    transform: Transform | None = None
    strategy: Strategy | None = None
    taps: Mapping[str, Names] = field(default_factory=dict)
    task: tuple[TaskTerm, ...] = ()
    subnetworks: bool = False  # whether a task term runs the network, or parts of it, again
    oracle: Oracle | None = None
    stale: bool = False  # whether the oracle looks at the step before's gradient
    masks: Mapping[str, Names] = field(default_factory=dict)
    anchored: tuple[Term, ...] = ()
    corrections: tuple[Term, ...] = ()
    displaced: tuple[Term, ...] = ()
    memory: tuple[Vector, ...] = ()
    own_start: Callable[[Values], bool] | None = None  # whether its memory begins at a random model
    equal_steps: Callable[[Values], bool] | None = None  # whether all clients take E·⌈(n/N)/B⌉ steps
    uploads: tuple[Vector, ...] = ()
    finish: tuple[Finisher, ...] = ()
    personal: Names | None = None
    server: Server | None = None
    observe: tuple[Observe, ...] = ()
    server_state: tuple[Vector, ...] = ()
    summed: tuple[str, ...] = ()  # client memory whose sum over the participants the server reads too
    broadcast: tuple[str, ...] = ()
    weights: Weights | None = None  # None: n_k
    only: Mapping[str, tuple[object, str]] = field(default_factory=dict)  # setting → its one value, and why
    clip: str | None = None  # the option that clips where --clip is not given; 0: not
    refuses: Mapping[str, str] = field(default_factory=dict)  # method → why not with it

    def __add__(self, other: "Method") -> "Method":
        """Return the method that does both.

        Raises:
            UserError: one refuses the other, or both fill a place that takes one.
        """
        for mine, theirs in ((self, other), (other, self)):
            for part in theirs.name.split("+"):
                if part in mine.refuses:
                    raise UserError(f"{mine.name} cannot be combined with {part}: {mine.refuses[part]}")
        joined = Method(**{f.name: _join(f, self, other) for f in dataclasses.fields(self)})
        twice = sorted(set(self._names()) & set(other._names()))
        if twice:
            raise UserError(f"{self.name} and {other.name} both call something {twice[0]!r}; rename one")
        return joined

    def _names(self) -> list[str]:
        """Return the names that must be unique in a sum: options, state, draws, taps, masks."""
        vectors = {v.name for v in (*self.memory, *self.uploads, *self.server_state)}
        return [*(o.name for o in self.options), *vectors, *self.draws, *self.taps, *self.masks]

    def values(self, given: Mapping[str, str], reading: Reading) -> dict[str, Value]:
        """Return every option's value: the given one, else the reading's.

        Raises:
            UserError: an option the method does not have, or a value it cannot take.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                hint = suggestion(name, known) or f"; it has {', '.join(known) or 'none'}"
                raise UserError(f"method {self.name} has no option {name!r}{hint}")
        return {
            name: option.read(given[name])
            if name in given
            else option.code
            if reading == "code" and option.code is not None
            else option.default
            for name, option in known.items()
        }

    @property
    def trains_alone(self) -> bool:
        """Whether its clients cannot be trained as a stack: each takes its own way through the network."""
        return bool(self.draws or self.transform or self.strategy or self.subnetworks)

    def models_held(self) -> int:
        """Return how many vectors of P a training client holds: w, θ_t where it is needed, its memory, …"""
        tied = bool(self.anchored or self.corrections or self.displaced or self.finish)
        kept = [vector for vector in self.memory if vector.scope in ("parameters", "model")]
        return 1 + tied + len(self.broadcast) + len(kept)


def _join(place: dataclasses.Field[Any], mine: Method, theirs: Method) -> Any:
    """Return what the sum of two methods has in one place."""
    a, b = getattr(mine, place.name), getattr(theirs, place.name)
    if place.name == "name":
        return f"{a}+{b}"
    if place.name in ONE:
        if a is not None and b is not None and a != b:
            raise UserError(
                f"{mine.name} and {theirs.name} each bring {ONE[place.name]}; "
                "a method has one: leave one of them out"
            )
        return a if a is not None else b
    if isinstance(a, str):
        return "; ".join(dict.fromkeys(text for text in (a, b) if text))
    return a or b if isinstance(a, bool) else {**a, **b} if isinstance(a, Mapping) else a + b


def parse(text: str, methods: Mapping[str, Method]) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``; the case does not matter.

    Raises:
        UserError: a name is unknown or stands twice, or two methods do not go together.
    """
    names = [name.strip() for name in text.lower().split("+")]
    for name in names:
        if name not in methods:
            hint = suggestion(name, methods) or f"; choose from {', '.join(methods)}"
            raise UserError(f"unknown method {name!r}{hint}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{text}: {twice[0]} stands twice; name each part of a method once")
    result = methods[names[0]]
    for name in names[1:]:
        result = result + methods[name]
    return result
