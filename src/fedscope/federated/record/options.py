"""A method's options: named, typed, each with the value that the published code has where it differs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedscope.errors import UserError

Value = bool | int | float | str
Values = Mapping[str, Value]
Reading = Literal["paper", "code"]
Weights = Literal["n_k", "n_used", "uniform"]


@dataclass(frozen=True)
class Option:
    """A named setting of a method; where the published code differs from the paper, both values.

    A number lies ``within`` its bounds, both included, and is whole where the default is an ``int``; a text
    is one of ``choices``, or free where there are none.
    """

    name: str
    default: Value
    help: str
    code: Value | None = None  # value under reading="code"; None: the default
    choices: tuple[str, ...] = ()
    within: tuple[float, float] = (0.0, math.inf)
    check: Callable[[str], None] | None = None  # of a free text
    rounds: bool = False  # whether it counts rounds: told where a run has fewer

    def __post_init__(self) -> None:
        """Refuse an option whose name or value is none."""
        if not isinstance(self.name, str):
            raise UserError(f"an option's name is a text, not {self.name!r}")
        for value in (self.default, self.code):
            if not isinstance(value, Value | None):
                raise UserError(
                    f"option {self.name}: a value is a number, a text, or true or false, not {value!r:.60}"
                )

    def read(self, text: str) -> Value:
        """Convert ``text`` to the option's type.

        Raises:
            UserError: it is not of that type, out of bounds, or none of the choices.
        """
        if isinstance(self.default, bool):
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise UserError(f"{self.name} is true or false, not {text!r}")
        if isinstance(self.default, str):
            if self.check:
                self.check(text)
            if text in self.choices or not self.choices:
                return text
            raise UserError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        kind = "whole" if isinstance(self.default, int) else "finite"
        low, high = self.within
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or math.isinf(value) or (kind == "whole" and value % 1):
            raise UserError(f"{self.name} is a {kind} number {self.bounds()}, not {text!r}")
        return int(value) if kind == "whole" else value

    def bounds(self) -> str:
        """Say what numbers are allowed."""
        low, high = self.within
        if math.isinf(high):
            return f"from {low:g} up"
        end = f"{high:g}"  # as it is read: 1 for a bound just below it
        return f"from {low:g} to {'below ' if float(end) > high else ''}{end}"
