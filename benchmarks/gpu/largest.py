"""The largest language models whose λ_max is certified on one GPU in a given time: GPT-2's architecture.

    python benchmarks/gpu/largest.py --json FILE [--size NAME]… [--basis KIND] [--seconds S] [--memory GB]

Every size is a process of its own (``largest_job.py``), so that one that runs out of memory ends alone. The
search stops at a residual of 1 % of λ_max, certified, or when its time is spent. What is not named stays in
the file as it is. ``--device cpu --tiny`` tries it on two small networks.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import machine
from largest_job import BASES, GB, SIZES

SETUP = 240  # seconds for building and training a network, and for its end
COLUMNS = (
    "size", "parameters", "basis", "rows", "λ_max", "residual/λ_max", "certified", "products", "seconds",
    "GPU, GB", "host, GB", "ended by",
)  # fmt: skip


def apart(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own finds of a size, or how it ended."""
    options = {key: value for key, value in vars(given).items() if key not in ("json", "size", "tiny")}
    words = [sys.executable, str(Path(__file__).with_name("largest_job.py")), name, json.dumps(options)]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    limit = given.seconds + SETUP
    try:
        ended = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"certified": False, "stopped": f"killed after {limit:.0f} s"}
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or ["no message"]
        return {"certified": False, "stopped": f"exit {ended.returncode}: {said[-1][:500]}"}
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def row(*cells: object) -> str:
    """Return a line of the table."""
    return f"| {' | '.join(map(str, cells))} |"


def line(name: str, one: dict[str, Any]) -> str:
    """Return what was found of a size, as a line."""
    peaks = [f"{one.get(key, 0) / GB:.1f}" for key in ("device_peak", "host_peak")]
    return row(
        name, f"{one.get('parameters', 0):,}", one.get("basis", ""), one.get("rows", ""),
        f"{one['lambda_max']:.5g}" if "lambda_max" in one else one.get("text", ""),
        f"{one['relative_residual']:.1e}" if "relative_residual" in one else "",
        "yes" if one["certified"] else "no", one.get("products", 0), f"{one.get('seconds', 0):.1f}", *peaks,
        one["stopped"],
    )  # fmt: skip


def main() -> None:
    """Run the sizes and write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=Path("gpu-largest.json"))
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--basis", choices=["auto", *BASES], default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--memory", type=float, default=74, help="GB of the device")
    parser.add_argument("--host-memory", type=float, default=122, help="GB of the host")
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="of SGD")
    parser.add_argument("--rate", type=float, default=0.1, help="of SGD")
    given = parser.parse_args()
    sizes = json.loads(given.json.read_text())["sizes"] if given.json.exists() else {}
    print(f"{row(*COLUMNS)}\n|{'---|' * len(COLUMNS)}", flush=True)
    for name in given.size or [size for size in SIZES if size.startswith("tiny") == given.tiny]:
        sizes[name] = apart(name, given)
        print(line(name, sizes[name]), flush=True)
        command = " ".join(["python", "benchmarks/gpu/largest.py", *sys.argv[1:]])
        content = {
            "schema": "fedscope/benchmark-gpu-largest/1",
            "command": command,
            "machine": machine.record(None),
            "sizes": sizes,
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
