"""Where and with what a benchmark ran."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import fedscope

FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
PEERS = ("torch", "pfl", "flwr", "ray")
PEERS_PROBE = f"""
import json
from importlib.metadata import distributions
found = {{one.name: one.version for one in distributions()}}
print(json.dumps({{name: found.get(name) for name in {PEERS!r}}}))
"""


def record(peers: Path | None) -> dict[str, object]:
    """Return the processor, its vector units, cores, the GPU, load before the start, versions and date."""
    cpu = cpuinfo()
    return {
        "cpu": cpu.get("model name", platform.processor()),
        "flags": {flag: flag in cpu.get("flags", "").split() for flag in FLAGS},
        "cores": len(os.sched_getaffinity(0)),
        "gpu": gpu(),
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "fedscope": fedscope.__version__,
        "torch": installed("torch"),
        "peers": json.loads(subprocess.check_output([peers, "-c", PEERS_PROBE])) if peers else {},
    }


def cpuinfo() -> dict[str, str]:
    """Return the first processor's fields of /proc/cpuinfo, none where there is no such file."""
    path = Path("/proc/cpuinfo")
    first = path.read_text().split("\n\n")[0] if path.exists() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def gpu() -> str | None:
    """Return the name of the GPU that tensors go to, None without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def installed(name: str) -> str | None:
    """Return a package's version here."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
