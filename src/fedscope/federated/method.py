"""A federated method is data: what it adds to the one local loop, with its options and its source.

A method contributes terms to the local objective, at two places that differ in meaning:
``task`` terms belong to the task loss and are seen wherever that is (a regulariser of activations),
``anchored`` terms depend on the parameters alone (a proximal term). Methods add: ``parse("fedprox+man")``
is the sum of two records. FedAvg is the record that adds nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from torch import Tensor, nn

from fedscope.errors import UserError

Value = bool | float | str
Values = Mapping[str, Value]
Reading = Literal["paper", "code"]


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
    """What a term sees of one local step."""

    parameters: Sequence[Tensor]  # w, trainable, in the model's order
    anchor: Sequence[Tensor]  # θ_t, the parameters the server sent, constant
    activations: Mapping[str, Tensor]  # outputs of the tapped modules, by name
    logits: Tensor  # (B, C)
    options: Values
    first_of_epoch: bool


Term = Callable[[Step], Tensor]
Taps = Callable[[nn.Module], list[str]]


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

    def __add__(self, other: "Method") -> "Method":
        """Return the method that does both."""
        return Method(
            name=f"{self.name}+{other.name}",
            objective=f"{self.objective}; {other.objective}",
            source=f"{self.source}; {other.source}",
            options=self.options + other.options,
            task=self.task + other.task,
            anchored=self.anchored + other.anchored,
            taps=self.taps + other.taps,
        )

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
        UserError: a name is unknown or stands twice.
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
