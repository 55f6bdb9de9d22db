"""How a long computation tells its caller that one more step is done."""

from collections.abc import Callable

Progress = Callable[..., None]
"""Called with (steps done, steps in all), and with a running estimate as text where there is one.

The steps in all are ``None`` where they are not known beforehand.
"""


def continued(progress: Progress | None, before: int) -> Progress | None:
    """Return a callback whose steps are counted on from ``before``; the steps in all are not known."""
    return progress and (lambda done, _, *text: progress(before + done, None, *text))
