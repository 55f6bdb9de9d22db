"""How a long computation tells its caller that one more step is done."""

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with (steps done, steps in all); ``None`` where the total is not known beforehand."""
