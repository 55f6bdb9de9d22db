"""How a long computation tells its caller that one more step is done."""

from collections.abc import Callable

from fedscope.choices import AtMost

Progress = Callable[..., None]
"""Called with (steps done, steps in all), and with a running estimate as text where there is one.

The steps in all are ``AtMost`` or ``None`` where they are not known beforehand.
"""


def continued(progress: Progress | None, before: int, searches: int = 0) -> Progress | None:
    """Return a callback whose steps are counted on from ``before``; the steps in all are not known.

    Args:
        progress: gets the steps.
        before: steps of what came before.
        searches: alike ones that are left, with this one; 0: not known.
    """

    if progress is None:
        return None

    def told(done: int, total: int | None, *text: str) -> None:
        most = AtMost(before + searches * total) if searches and isinstance(total, AtMost) else None
        progress(before + done, most, *text)

    return told
