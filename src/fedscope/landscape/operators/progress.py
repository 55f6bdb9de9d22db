"""How a long computation tells its caller that one more step is done."""

from collections.abc import Callable

Progress = Callable[..., None]
"""Called with (steps done, steps in all), and with a running estimate as text where there is one.

The steps in all are ``None`` where they are not known beforehand.
"""
