"""How a long computation tells its caller that one more step is done."""

from collections.abc import Callable

from fedscope.choices import AtMost

Progress = Callable[..., None]
"""Called with (steps done, steps in all), and with a running estimate as text where there is one.

The steps in all are ``AtMost`` or ``None`` where they are not known beforehand.
"""


def continued(progress: Progress | None, before: int, searches: int = 0) -> Progress | None:
    """Return a callback that counts on from ``before``; ``searches``: alike ones left with this one, or 0."""

    def told(done: int, total: int | None, *text: str) -> None:
        bound = isinstance(total, AtMost) and searches
        progress(before + done, AtMost(before + searches * total) if bound and total else None, *text)  # type: ignore[misc]

    return progress and told
