"""A federated method is data: what it adds to the one local loop and to the server, with options and source.

Methods add: ``parse("fedprox+man")`` is the sum of two records. FedAvg is the record that adds nothing. How a
field of a sum is filled stands at the field (:mod:`fedscope.federated.record.merging`); what its functions
see is in :mod:`fedscope.federated.record.views`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypedDict, get_args

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError, suggestion
from fedscope.federated.record.merging import added, any_of, at_most_one, chain, check_types, joined, union
from fedscope.federated.record.options import Option, Reading, Value, Values, Weights
from fedscope.federated.record.vectors import TRAINED, Vector
from fedscope.federated.record.views import (
    Averaging,
    Batch,
    Draws,
    Finish,
    Pass,
    Sending,
    ServerStep,
    Stack,
    Term,
)

Draw = Callable[[torch.Generator, Values, Tensor, nn.Module], Any]  # images (B, C, H, W) of the batch
BatchTransform = Callable[[Batch, Draws, Values], Batch]
ForwardContext = Callable[[nn.Module, Draws], AbstractContextManager[None]]
Names = Callable[[nn.Module, Values], list[str]]
NetworkCheck = Callable[[nn.Module, Values], None]
ImageCheck = Callable[[nn.Module, Tensor, Values], object]  # network in training mode, image (1, C, H, W)
Flag = Callable[[Values], bool]
Recalibration = Callable[[Values], Literal["off", "report", "upload"]]
TaskTerm = Callable[[Pass], Tensor]
ParameterTerm = Callable[[Term], Tensor]
Correction = Callable[[Stack], Tensor]  # (K, P)
Gradient = Callable[..., Tensor]  # (parameters (K, P), keep_buffers=False, ascent=False) → (K, P)
GradientAt = Callable[[Gradient, Stack], Tensor | tuple[Tensor, dict[str, Tensor]]]  # with new ``step_state``
Calibration = Callable[
    [Tensor, Tensor, Values], Tensor
]  # (logits (B, C), label counts (C,), options) → (B, C)
Rate = Callable[[float, Values], float]  # share of the round's local steps that are done → factor of η_t
RoundRate = Callable[[int, Values], float]  # round, counted from 1 → factor of η_t
Average = Callable[[Averaging], Tensor]  # (P,)
StepRule = Callable[[Stack], dict[str, Tensor]]
Sent = Callable[[Sending], Tensor]  # (P,)
Finisher = Callable[[Finish], dict[str, Tensor]]
State = dict[str, Tensor]
ServerRule = Callable[[ServerStep], tuple[Tensor, State]]
ServerNote = Callable[[ServerStep], State]


class NetworkNeeds(TypedDict, total=False):
    """How a method's network differs from a plain one: fields of a checkpoint's ``ModelSpec``."""

    head: bool
    keep: float
    schedule: Literal["code", "paper"]


@dataclass(frozen=True)
class Required:
    """A setting of the training that a method is bound to, its one value, and why."""

    setting: str
    value: object
    why: str
    unless: tuple[str, Value] | None = None  # option and its value with which it is not bound

    @property
    def flag(self) -> str:
        """The option of the command line, with its value."""
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        return f"--{self.setting.replace('_', '-')} {value}"

    def holds(self, options: Values) -> bool:
        """Say whether the method is bound to the setting, with these ``options``."""
        return self.unless is None or options.get(self.unless[0]) != self.unless[1]


@dataclass(frozen=True)
class Method:
    """A method, or a sum of methods. The fields stand in the order of a round."""

    name: str = joined("+", required=True)
    objective: str = joined("; ", required=True)
    source: str = joined("; ", required=True)
    place: str = joined("; ")  # where it enters the step, in words
    flatness: bool = any_of()  # whether its paper claims that it finds flat minima
    options: tuple[Option, ...] = chain(of=Option)

    # before training
    network_needs: tuple[Callable[[Values], NetworkNeeds], ...] = chain()  # how the network is built
    checks: tuple[NetworkCheck, ...] = chain()  # each raises a UserError for what the user can mend
    single_image_checks: tuple[ImageCheck, ...] = chain()  # a ValueError: no step can be taken on one image
    required_settings: tuple[Required, ...] = chain(of=Required)
    refuses: Mapping[str, str] = union(of=str)  # method → why not with it
    weights: Weights | None = at_most_one("a weighting of the mean", of=str)  # None: n_k

    # what a client remembers and receives
    memory: tuple[Vector, ...] = chain(of=Vector)
    label_counts: bool = any_of()  # whether its functions see how often each class is among the client's rows
    random_start: Flag | None = at_most_one("a start of a client")  # whether start="own" is a random model
    personal: Names | None = at_most_one("a choice of personal tensors")  # those that stay with the client
    terms_see_personal: Flag | None = at_most_one("a scope of the terms")  # else these never move for them
    equal_steps: Flag | None = at_most_one("a number of local steps")  # whether all take E·⌈(n/N)/B⌉ steps

    # a local step: the task loss
    draws: Mapping[str, Draw] = union()  # what a step draws at random, from the method's own stream
    batch_transform: BatchTransform | None = at_most_one("a transform of the batch")
    forward_context: ForwardContext | None = at_most_one("a way to run the network")  # around a forward pass
    taps: Mapping[str, Names] = union()  # the modules whose outputs the task terms read
    logits: tuple[Calibration, ...] = chain()  # what the cross-entropy sees of them, one after the other
    task_terms: tuple[TaskTerm, ...] = chain()  # added to the task loss, wherever that is differentiated
    notes: Mapping[str, Names] = union()  # labels of what the task terms note of a pass, for the metrics
    reads_received: bool = any_of()  # whether ``task_terms`` or ``ascent_loss`` read the model as received
    subnetworks: bool = any_of()  # whether a task term runs the network, or parts of it, again
    ascent_loss: TaskTerm | None = at_most_one("a loss of the ascent")  # which ``gradient_at`` may ask for
    gradient_at: GradientAt | None = at_most_one("an ascent step")  # where the task loss is differentiated
    last_gradient: bool = any_of()  # whether ``gradient_at`` sees the gradient of the step before

    # a local step: from the gradient to the parameters
    gradient_maps: tuple[Correction, ...] = chain()  # what becomes of the task loss's gradient, in turn
    step_state: tuple[Vector, ...] = chain(
        of=Vector
    )  # of a client in training; it begins anew in every round
    each_step: tuple[StepRule, ...] = chain()  # new ``step_state``, after the clip and before corrections
    masks: Mapping[str, Names] = union()  # named choices of parameters
    parameter_terms: tuple[ParameterTerm, ...] = chain()  # of w alone, at the client's point, inside the clip
    default_clip: str | None = at_most_one(
        "a clipping option", of=str
    )  # clips where --clip is not given; 0: not
    after_clip: tuple[Correction, ...] = chain()  # added to the gradient, before decay and momentum
    after_momentum: tuple[Correction, ...] = chain()  # added to the direction
    local_rate: Rate | None = at_most_one("a schedule of the local rate")  # within a round
    round_rates: tuple[RoundRate, ...] = chain()  # factors of η_t, multiplied, whatever the schedule is

    # when local training ends
    recalibration: Recalibration | None = at_most_one("a recalibration")  # BatchNorm's, see client
    finish: tuple[Finisher, ...] = chain()  # new ``memory``, and ``uploads`` beyond the model
    uploads: tuple[Vector, ...] = chain(of=Vector)

    # on the server
    server: ServerRule | None = at_most_one("a server rule")  # what becomes of the mean of the uploads
    summed_memory: tuple[str, ...] = chain(
        of=str
    )  # client memory whose sum over the participants it reads too
    sends: Sent | None = at_most_one("a model to send")  # instead of the server's own: where clients start
    averages: Average | None = at_most_one("an average of models")  # kept and evaluated, not trained on
    only_keeps: str = joined("; ")  # why its server rule goes with no ``sends``; empty: it starts at ``kept``
    server_notes: tuple[ServerNote, ...] = chain()  # further state that the server keeps
    server_state: tuple[Vector, ...] = chain(of=Vector)
    broadcast: tuple[str, ...] = chain(of=str)  # the server's vectors that clients receive

    def __post_init__(self) -> None:
        """Refuse a record that no run could use."""
        check_types(self)
        if self.weights not in (None, *get_args(Weights)):
            takes = ", ".join(get_args(Weights))
            raise UserError(f"method {self.name}: weights is {self.weights!r}; it takes {takes}")
        for bound in self.required_settings:
            if bound.setting not in Settings.model_fields:
                raise UserError(
                    f"method {self.name}: required_settings names {bound.setting!r}, which is no setting"
                    f"{suggestion(bound.setting, Settings.model_fields)}"
                )
        declared = {
            "broadcast": ("server_state", [vector.name for vector in self.server_state]),
            "summed_memory": ("memory", [vector.name for vector in self.memory]),
            "default_clip": ("options", [option.name for option in self.options]),
        }
        for name, (field, known) in declared.items():
            value = getattr(self, name)
            for used in (value,) if isinstance(value, str) else value or ():
                if used not in known:
                    has = suggestion(used, known) or f", which has {', '.join(known) or 'none'}"
                    raise UserError(
                        f"method {self.name}: {name} names {used!r}, which is not in {field}{has}"
                    )
        for one in ("options", "memory", "uploads", "step_state", "server_state"):
            names = [entry.name for entry in getattr(self, one)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice:
                raise UserError(f"method {self.name}: {one} has {twice!r} twice; leave one of them out")
        if self.personal and not any(vector.scope == "personal" for vector in self.memory):
            raise ValueError(
                f"{self.name} has personal tensors but no memory of them; add Vector('personal', 'personal') "
                "to its memory"
            )

    def __add__(self, other: "Method") -> "Method":
        """Return the method that does both."""
        for mine, theirs in ((self, other), (other, self)):
            for part in theirs.name.split("+"):
                if part in mine.refuses:
                    raise UserError(f"{mine.name} cannot be combined with {part}: {mine.refuses[part]}")
        total = Method(**added(self, other))
        twice = sorted(set(self._names()) & set(other._names()))
        if twice:
            raise UserError(f"{self.name} and {other.name} both call something {twice[0]!r}; rename one")
        if total.sends and total.only_keeps:
            sender, ruled = (self, other) if self.sends else (other, self)
            raise UserError(
                f"{ruled.name} cannot be combined with {sender.name}, which sends another model than the "
                f"server keeps: {total.only_keeps}"
            )
        return total

    def _names(self) -> list[str]:
        """Return the names that must be unique in a sum: options, state, draws, taps, masks, notes."""
        vectors = {v.name for v in (*self.memory, *self.uploads, *self.server_state, *self.step_state)}
        names = (*self.draws, *self.taps, *self.masks, *self.notes)
        return [*(o.name for o in self.options), *vectors, *names]

    def values(self, given: Mapping[str, str], reading: Reading) -> dict[str, Value]:
        """Return every option's value: the given one, else the reading's.

        Raises:
            UserError: an option the method does not have, or a value it cannot take.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                hint = suggestion(name, known) or (
                    f"; it has {', '.join(known)}" if known else "; it has none, leave it out"
                )
                raise UserError(f"method {self.name} has no option {name!r}{hint}")
        return {
            name: option.read(given[name])
            if name in given
            else option.code
            if reading == "code" and option.code is not None
            else option.default
            for name, option in known.items()
        }

    def mean_rate(self, options: Values, steps: int) -> float:
        """Return the mean over a client's ``steps`` local steps of the factor of η_t."""
        rate = self.local_rate
        return fmean(rate(step / steps, options) for step in range(steps)) if rate else 1.0

    @property
    def kept_vectors(self) -> tuple[Vector, ...]:
        """The server's state, with the model that is trained where an average is kept in its place."""
        return (*self.server_state, TRAINED) if self.averages else self.server_state

    @property
    def sends_another(self) -> bool:
        """Whether clients start from another model than the one that the server keeps and evaluates."""
        return self.sends is not None or self.averages is not None

    @property
    def trains_alone(self) -> bool:
        """Whether its clients cannot be trained as a stack: each takes its own way through the network."""
        path = self.draws or self.batch_transform or self.forward_context or self.subnetworks
        return bool(path or self.recalibration)

    def models_held(self) -> int:
        """Return how many vectors of P a training client holds: w, θ_t where it is needed, its memory, …"""
        tied = bool(self.parameter_terms or self.after_clip or self.after_momentum or self.finish)
        received = [vector for vector in self.server_state if vector.name in self.broadcast]
        held = (*self.memory, *self.step_state, *received)
        kept = [vector for vector in held if vector.scope in ("parameters", "model")]
        return 1 + (tied or self.reads_received) + len(kept)


def parse(text: str, methods: Mapping[str, Method]) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``; the case does not matter."""
    names = [name.strip() for name in text.lower().split("+")]
    for name in names:
        if name not in methods:
            if not name:
                raise UserError(f"a name lacks beside a + of method {text!r}; write it as fedavg+man")
            hint = suggestion(name, methods) or f"; choose from {', '.join(methods)}"
            raise UserError(f"unknown method {name!r}{hint}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{text}: {twice[0]} stands twice; name each part of a method once")
    result = methods[names[0]]
    for name in names[1:]:
        result = result + methods[name]
    return result
