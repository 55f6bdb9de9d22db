"""Which clients are trained together, and by which worker.

The stacks do not depend on the number of workers, and each is computed whole by one of them, so the result
does not depend on it either.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

Stack = list[int]


def stacks(clients: Sequence[int], alike: Callable[[int], Hashable], longest: int) -> list[Stack]:
    """Gather clients of equal ``alike`` into stacks of up to ``longest``, ordered by their first clients."""
    done: list[Stack] = []
    open_: dict[Hashable, Stack] = {}
    for client in clients:
        stack = open_.get(alike(client))
        if stack is None or len(stack) == longest:
            stack = open_[alike(client)] = []
            done.append(stack)
        stack.append(client)
    return done


def windows(items: Sequence[Stack], count: int) -> Iterator[Sequence[Stack]]:
    """Cut ``items`` into consecutive parts of ``count``: trained before their uploads are added up."""
    for start in range(0, len(items), count):
        yield items[start : start + count]


def assign(loads: Sequence[int], workers: int) -> list[list[int]]:
    """Return, per worker, the places of the loads it takes, heaviest first (longest processing time first).

    The heaviest load left goes to the worker with the least so far (Graham 1969).
    """
    taken: list[list[int]] = [[] for _ in range(workers)]
    total = [0] * workers
    for place in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        worker = total.index(min(total))
        taken[worker].append(place)
        total[worker] += loads[place]
    return taken
