"""The costs of a round besides its seconds: bytes sent each way, and memory."""

import re
import resource
import sys
from pathlib import Path

import torch

from fedscope.federated.client.loop import LocalTrainer


def traffic(trainer: LocalTrainer, clients: int) -> dict[str, int]:
    """Return the bytes sent to and by ``clients`` sampled clients.

    A client receives and sends the P parameters, the Q running statistics and the method's further vectors,
    each less what is personal, in float32: the traffic of a deployment, not that between workers.
    """
    state = trainer.clients
    size = trainer.model.values.shape[1] - len(state.personal)
    layouts = (state.broadcast, state.uploads)
    down, up = (4 * clients * (size + state.further(layout)) for layout in layouts)
    return {"bytes_down": down, "bytes_up": up}


def peak_memory() -> int:
    """Return the largest resident size that this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage includes the parent's, before this program was started
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_gpu_memory() -> int:
    """Return the largest number of bytes that this process has had in tensors on its GPU; 0 without one."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
