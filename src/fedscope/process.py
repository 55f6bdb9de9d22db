"""A process that computes for long: its threads, device, exact kernels, reuse of freed memory, and its size.

The C library returns large blocks to the system as soon as they are freed, and the next step of the same size
pays for fresh pages: 3,700 page faults and an eighth of the time of a training step of ``convnet_cifar``.
Keeping the blocks costs nothing, since the next step needs them again.
"""

import ctypes
import math
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedscope.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LITTLE = 2 * 10**8  # multiplications of a batch
LIMIT = 2**27  # bytes; larger blocks would leave holes in the heap that nothing of another size fits


def set_up(device: torch.device, threads: int, place: int = 0) -> None:
    """Prepare this process, the ``place``-th of its machine, for computing on ``device``.

    A GPU without an index is taken in turn by place. On a GPU, fp32 means fp32 and not TF32, and convolutions
    use the kernels that give the same bits again.
    """
    reuse_freed_memory()
    torch.set_num_threads(threads)
    if device.type == "cuda":
        index = place % torch.cuda.device_count() if device.index is None else device.index
        torch.cuda.set_device(index)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = False


def use_device(name: str, threads: int | None, workers: int = 1, place: int = 0) -> torch.device:
    """Set the process up for long computations and return the device; ``auto`` prefers a GPU.

    Without ``threads``, ``workers`` processes divide the cores; this is the ``place``-th of its machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device {name!r}; use auto, cpu or cuda") from error
    count = torch.cuda.device_count() if device.type == "cuda" else device.type == "cpu"
    if (device.index or 0) >= count:
        raise UserError(f"there is no device {name!r} here; use --device auto or cpu")
    set_up(device, threads or max(1, usual_threads() // workers), place)
    return device


def usual_threads() -> int:
    """Return how many threads this process takes for work that is not little."""
    now = torch.get_num_threads()
    return _usual if now == 1 and _usual else now


def take_one_thread() -> None:
    """Compute on one thread from now on, until the process is set up anew (:func:`use_device`)."""
    global _usual
    _usual = usual_threads()
    torch.set_num_threads(1)


_usual = 0  # threads before one was taken; 0: it was not


def is_little(parameters: int, rows: int, sample: torch.Tensor) -> bool:
    """Say whether threads would wait for each other as long as they save on a batch of ``rows``.

    Counted as if each parameter were multiplied at every place of ``sample``, (channels, places…) or a row of
    tokens, which no convolution does more often.
    """
    places = sample.shape[1:] if sample.is_floating_point() else sample.shape
    return parameters * rows * math.prod(places) <= LITTLE


@contextmanager
def threads_kept() -> Iterator[None]:
    """Set the number of threads back at the end."""
    global _usual
    threads, usual = torch.get_num_threads(), _usual
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _usual = usual


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: for many short operations, between which threads would wait for each other."""
    with threads_kept():
        torch.set_num_threads(1)
        yield


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device itself computes in bfloat16.

    On an x86 processor without instructions for it a training step takes four times as long as in fp32.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    x86 = known.get("architecture") == "x86_64"
    return not x86 or bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def reuse_freed_memory(most: int = LIMIT) -> bool:
    """Keep freed blocks of up to ``most`` bytes for reuse; return whether this C library (glibc) can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, most) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


def seconds_of(work: Callable[[], torch.Tensor]) -> float:
    """Return the seconds that a tensor takes to compute, on a GPU too."""
    begun = time.perf_counter()
    float(work().norm())  # which waits for a GPU
    return time.perf_counter() - begun


def resident_memory() -> int:
    """Return the bytes of this process that are in memory now; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return 1024 * int(re.findall(r"VmRSS:\s*(\d+) kB", status.read_text())[0])


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
