"""The seconds of a round, by phase."""

import time

PHASES = (
    "data", "compute", "waiting", "aggregation", "diagnostics", "evaluation", "probe", "checkpointing",
)  # fmt: skip


class PhaseClock:
    """A stopwatch that is always in one phase; switching to a phase ends the one before.

    The phases of a round add up to its wall time. On a GPU ``data`` is the preparation on the host; gathering
    and augmenting a batch belongs to the recorded step, and so to ``compute``.
    """

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._phase = PHASES[0]
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def switch_to(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def read(self) -> dict[str, float]:
        """Return the seconds per phase since the last reading."""
        self.switch_to(self._phase)
        seconds, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return seconds
