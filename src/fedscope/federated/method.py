"""A federated method is data: what it adds to the one local loop and to the server, with options and source.

Its places, in the order of a local step:

``task``         terms of the task loss, seen wherever that is (a regulariser of activations)
``anchored``     terms of the parameters alone (a proximal term)
``corrections``  what is added to the gradient after it was clipped
``memory``       the vectors a client keeps until it is sampled again, and ``remember``, their update
``server``       what becomes of the mean of the uploads, and ``server_state``, the vectors that rule keeps

Methods add: ``parse("fedprox+man")`` is the sum of two records. FedAvg is the record that adds nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeVar

from torch import Tensor, nn

from fedscope.errors import UserError

Value = bool | float | str
Values = Mapping[str, Value]
Reading = Literal["paper", "code"]
Weights = Literal["n_k", "uniform"]


@dataclass(frozen=True)
class Option:
    """A named setting of a method; where the published code differs from the paper, both values."""

    name: str
    default: Value
    help: str
    code: Value | None = None  # value under reading="code"; None: the default
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Value:
        """Convert ``text`` to the option's type.

        Raises:
            UserError: it is not of that type, or none of the choices.
        """
        if isinstance(self.default, bool):
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise UserError(f"{self.name} is true or false, not {text!r}")
        if isinstance(self.default, str):
            if text in self.choices:
                return text
            raise UserError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value < float("inf"):
            raise UserError(f"{self.name} is a finite number from 0 up, not {text!r}")
        return value


@dataclass(frozen=True)
class Step:
    """What a term or a correction sees of one local step.

    A term sees one client: vectors are (P,) and ``share`` is (). A correction sees a stack of clients:
    vectors are (K, P) and ``share`` is (K, 1); there are no activations and logits.
    """

    parameters: Tensor  # w, trainable
    anchor: Tensor  # θ_t, the parameters the server sent, constant
    options: Values
    share: Tensor  # n_k·N/n: the client's size in units of the mean client
    memory: Mapping[str, Tensor]
    activations: Mapping[str, Tensor]  # outputs of the tapped modules, by name
    logits: Tensor | None = None  # (B, C)
    first_of_epoch: bool = False


@dataclass(frozen=True)
class Finish:
    """What a client sees when its local training ends; vectors are (K, P)."""

    parameters: Tensor  # w_k
    anchor: Tensor  # θ_t
    memory: Mapping[str, Tensor]
    options: Values


@dataclass(frozen=True)
class ServerStep:
    """What the server sees when all uploads are in; vectors are (P,) in float64."""

    mean: Tensor  # Σ p_k w_k
    anchor: Tensor  # θ_t
    state: Mapping[str, Tensor]
    participants: int  # m
    clients: int  # N
    options: Values


Term = Callable[[Step], Tensor]
Taps = Callable[[nn.Module], list[str]]
Remember = Callable[[Finish], dict[str, Tensor]]
Server = Callable[[ServerStep], tuple[Tensor, dict[str, Tensor]]]
T = TypeVar("T")


@dataclass(frozen=True)
class Method:
    """A method, or a sum of methods."""

    name: str
    objective: str
    source: str
    options: tuple[Option, ...] = ()
    task: tuple[Term, ...] = ()
    anchored: tuple[Term, ...] = ()
    taps: tuple[Taps, ...] = ()  # which modules' outputs the task terms read
    corrections: tuple[Term, ...] = ()
    memory: tuple[str, ...] = ()
    remember: Remember | None = None
    server: Server | None = None
    server_state: tuple[str, ...] = ()
    weights: Weights | None = None  # of the mean; None: n_k
    traffic: tuple[int, int] = (0, 0)  # vectors beyond the model that a client receives, and sends

    def __add__(self, other: "Method") -> "Method":
        """Return the method that does both.

        Raises:
            UserError: both fill a place that takes one.
        """
        return Method(
            name=f"{self.name}+{other.name}",
            objective=f"{self.objective}; {other.objective}",
            source=f"{self.source}; {other.source}",
            options=self.options + other.options,
            task=self.task + other.task,
            anchored=self.anchored + other.anchored,
            taps=self.taps + other.taps,
            corrections=self.corrections + other.corrections,
            memory=self.memory + other.memory,
            remember=self._either(other, "client memory", self.remember, other.remember),
            server=self._either(other, "server rule", self.server, other.server),
            server_state=self.server_state + other.server_state,
            weights=self._either(other, "weighting of the mean", self.weights, other.weights),
            traffic=(self.traffic[0] + other.traffic[0], self.traffic[1] + other.traffic[1]),
        )

    def _either(self, other: "Method", place: str, mine: T | None, theirs: T | None) -> T | None:
        if mine is not None and theirs is not None:
            raise UserError(
                f"{self.name} and {other.name} each bring a {place}; a method has one: leave one of them out"
            )
        return mine if mine is not None else theirs

    def values(self, given: Mapping[str, str], reading: Reading) -> dict[str, Value]:
        """Return every option's value: the given one, else the reading's.

        Raises:
            UserError: an option the method does not have, or a value it cannot take.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
                raise UserError(f"method {self.name} has no option {name!r}; {hint}")
        return {
            name: option.read(given[name])
            if name in given
            else option.code
            if reading == "code" and option.code is not None
            else option.default
            for name, option in known.items()
        }


def parse(text: str, methods: Mapping[str, Method]) -> Method:
    """Return the sum of the methods named in ``text``, such as ``fedavg+man``; the case does not matter.

    Raises:
        UserError: a name is unknown or stands twice, or two methods fill the same place.
    """
    names = [name.strip() for name in text.lower().split("+")]
    for name in names:
        if name not in methods:
            near = get_close_matches(name, methods, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(methods)}"
            raise UserError(f"unknown method {name!r}; {hint}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{text}: {twice[0]} stands twice; name each part of a method once")
    result = methods[names[0]]
    for name in names[1:]:
        result = result + methods[name]
    return result
