"""What a round costs: bytes each way, gradients, seconds by phase, memory."""

import re
import resource
import sys
import time
from pathlib import Path

import torch

from fedscope.federated.federation import Federation
from fedscope.federated.flat import FlatModel

PHASES = ("data", "compute", "waiting", "aggregation", "evaluation", "checkpointing")


class Clock:
    """A stopwatch that is always in one phase; entering a phase ends the one before.

    The phases of a round add up to its wall time. On a GPU ``data`` is what the host prepares; gathering
    and augmenting a batch belongs to the recorded step, and so to ``compute``.
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
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says includes the parent's, before this program was started
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_gpu_memory() -> int:
    """Return the largest number of bytes that this process has had in tensors on its GPU; 0 without one."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
