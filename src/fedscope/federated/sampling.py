"""Which clients take part in a round."""

import math

from fedscope.errors import UserError
from fedscope.streams import numpy_stream

MAX_DRAWS = 1000


def sample_clients(kind: str, clients: int, participation: float, seed: int, round: int) -> list[int]:
    """Return the round's clients in ascending order; the draw depends on (seed, round) alone.

    ``fixed_fraction``: ⌊N·f⌋ without replacement, all of them at f = 1. ``bernoulli``: each independently
    with probability f, drawn again while nobody is chosen.

    Raises:
        UserError: nobody is chosen: less than one client, or a thousand empty draws.
    """
    generator = numpy_stream(seed, "sampling", round)
    if kind == "bernoulli":
        for _ in range(MAX_DRAWS):
            chosen = (generator.random(clients) < participation).nonzero()[0]
            if len(chosen):
                return [int(k) for k in chosen]
    count = math.floor(clients * participation + 1e-9)  # 10 of 100 at 0.1, whatever 0.1 is in binary
    if kind == "bernoulli" or count < 1:
        raise UserError(f"--participation {participation:g} of {clients} clients is nobody; raise it")
    return sorted(int(k) for k in generator.choice(clients, count, replace=False))
