"""Which models inside the clients' local training a run keeps: ``EVERY:CLIENTS:ROUNDS``."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST = 10**6  # of a step's number

_NUMBERS = r"all|[0-9]{1,9}(?:,[0-9]{1,9})*"
_FORM = re.compile(rf"([0-9]{{1,6}}):({_NUMBERS}):({_NUMBERS})")


@dataclass(frozen=True)
class KeptSteps:
    """The model after every ``every``-th local step of some clients in some rounds; None: of all."""

    every: int
    clients: frozenset[int] | None
    rounds: frozenset[int] | None

    @classmethod
    def parse(cls, text: str | None) -> "KeptSteps":
        """Return what ``EVERY:CLIENTS:ROUNDS`` says, numbers with commas or ``all``; None keeps nothing."""
        if text is None:
            return cls(1, frozenset(), frozenset())
        found = _FORM.fullmatch(text)
        every = int(found[1]) if found else 0
        if not found or not every or "0" in found[3].split(","):
            raise ValueError(
                f"--keep-steps takes EVERY:CLIENTS:ROUNDS, such as 5:0,3:1,10 or 1:all:2, not {text!r}; "
                "steps and rounds count from 1"
            )
        return cls(every, _numbers(found[2]), _numbers(found[3]))

    def of(self, round: int, client: int, steps: int = MOST) -> range:
        """Return the local steps after which the client's model is kept, of ``steps`` in the round."""
        chosen = all(
            kept is None or one in kept for kept, one in ((self.clients, client), (self.rounds, round))
        )
        return range(self.every, (steps if chosen else 0) + 1, self.every)

    def inside(
        self, round: int, clients: Sequence[int], steps: Callable[[int], int]
    ) -> list[tuple[int, int]]:
        """Return (client, step) of what is kept of ``clients`` that make so many ``steps``, by step."""
        kept = [(s, row) for row, one in enumerate(clients) for s in self.of(round, one, steps(one))]
        return [(clients[row], step) for step, row in sorted(kept)]


def _numbers(text: str) -> frozenset[int] | None:
    return None if text == "all" else frozenset(map(int, text.split(",")))
