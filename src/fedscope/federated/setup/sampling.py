"""Which clients take part in a round.

Two published programs draw otherwise, which a stream per (seed, purpose, round) cannot reproduce: FedAlign
draws the clients of all rounds up front from a generator seeded 1; MAN's code seeds its generator with the
round index in every run, so that its three "seeds" have the same clients, and takes the next seed when no
client is drawn. The distributions are ``fixed_fraction``'s and ``bernoulli``'s.
"""

import math

from fedscope.errors import UserError
from fedscope.streams import numpy_stream

KINDS = ("fixed_fraction", "bernoulli", "all")
MAX_DRAWS = 1000


def sample_clients(kind: str, clients: int, participation: float, seed: int, round: int) -> list[int]:
    """Return the round's clients in ascending order; the draw depends on (seed, round) alone.

    ``fixed_fraction``: ⌊N·f⌋ without replacement, all of them at f = 1. ``bernoulli``: each independently
    with probability f, drawn again while no client is chosen. ``all``: all clients, without a draw.
    """
    if kind not in KINDS:
        raise UserError(f"unknown sampling {kind!r}; choose one of {', '.join(KINDS)}")
    if kind == "all":
        if participation != 1:
            raise UserError(
                f"--sampling all takes everyone; leave --participation {participation:g} out, or use "
                "--sampling fixed_fraction"
            )
        return list(range(clients))
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
