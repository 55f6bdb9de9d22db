"""What a round costs: bytes each way, gradients, seconds by phase, memory."""

import resource
import sys
import time

from fedscope.federated.federation import Federation
from fedscope.federated.flat import FlatModel

PHASES = ("data", "compute", "waiting", "aggregation", "evaluation", "checkpointing")


class Clock:
    """A stopwatch that is always in one phase; entering a phase ends the one before.

    The phases of a round add up to its wall time. On a GPU the host only launches work, so ``data`` is what
    the host prepares, and the device's time shows in the phase that waits for a result.
    """

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._phase = PHASES[0]
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def enter(self, phase: str) -> None:
        """Stop the current phase and start ``phase``."""
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def lap(self) -> dict[str, float]:
        """Return the seconds per phase since the last lap."""
        self.enter(self._phase)
        seconds, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return seconds


def traffic(federation: Federation, sampled: list[int], model: FlatModel) -> dict[str, int]:
    """Return the bytes sent to and by the sampled clients, and the mini-batch gradients they computed.

    A client receives and sends the P parameters and the Q running statistics, and the method's further
    vectors of P, in float32: what crosses the network in a deployment, not between workers here.
    """
    settings, size = federation.settings, model.values.shape[1]
    down, up = (4 * len(sampled) * (size + extra * model.size) for extra in federation.method.traffic)
    batches = sum(-(-len(federation.rows[client]) // settings.batch_size) for client in sampled)
    return {"bytes_down": down, "bytes_up": up, "gradients": settings.epochs * batches}


def peak_memory() -> int:
    """Return the largest resident size that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
