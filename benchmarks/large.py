"""Networks of 21 to 124 million parameters on one machine: what a measurement takes, ours and the peers'.

    python benchmarks/large.py --json FILE [--job NAME]… [--data-dir DIR] [--threads N] [--peers PYTHON]

Every job is a process of its own, whose largest resident size the system tells when it ends (``plan.py``).
``--peers`` is a Python with PyHessian, hessian-eigenthings, curvlinops and transformers: each then looks for
the same λ_max in the same memory (``contestants/large_peer.py``). Jobs that are not named stay as they are.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import machine
from plan import HERE, child

GIB = 1 << 30
MEMORY, MOST = 12, 60  # GiB; products that a peer may take
TEXT = ("--model", "hf:base", "--data", "text:text:256")
IMAGES = ("--model", "hf:vit", "--data", "images:images")
WITHIN = ("--tol", "1e-2", "--memory", f"{MEMORY}G")
JOBS = {  # what large_jobs.py makes, then arguments of ``fedscope hessian``
    "gpt2": ("gpt2", (*TEXT, *WITHIN)),
    # whose trace at random adapters is small beside ‖H‖_F: 5 % would take a thousand probes
    "gpt2-lora": ("adapters", ("adapters", *TEXT, *WITHIN, "--probes", "16")),
    "vit": ("vit", (*IMAGES, *WITHIN)),
}
PEERS = ("pyhessian", "hessian-eigenthings", "curvlinops")


def measured(name: str, data_dir: Path | None, threads: str) -> dict[str, Any]:
    """Return what our measurement found and took."""
    made, options = JOBS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        own = [str(data_dir.resolve())] if data_dir and made == "vit" else []
        child([str(HERE / "large_jobs.py"), made, ".", *own], folder)
        given = [*options, "--threads", threads, "--recompute", "--json", "record.json"]
        peak = child(["-m", "fedscope", "hessian", *given], folder)
        record = json.loads((folder / "record.json").read_text())
    value, trace = record["lambda_max"], record["trace"]
    return {
        "command": " ".join(("fedscope", "hessian", *options, "--threads", threads)),
        "network": made,
        "samples": record["problem"]["samples"],
        "lambda_max": value,
        "trace": trace,
        "products": record["matvecs"],
        "seconds": record["seconds"],
        "peak": peak,
        "limit": MEMORY * GIB,
        "within": peak <= MEMORY * GIB,
    }


def peer(name: str, python: str, threads: str) -> dict[str, Any]:
    """Return what a peer found of GPT-2's λ_max, and took; a line without a value is where it ended."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        child([str(HERE / "large_jobs.py"), "gpt2", "."], folder)
        script = str(HERE / "contestants" / "large_peer.py")
        words = [script, name, ".", str(MEMORY * GIB), str(MOST), threads]
        peak = child(words, folder, python=python, said=folder / "said")
        lines = [line for line in (folder / "said").read_text().splitlines() if line.startswith("{")]
    return {**(json.loads(lines[-1]) if lines else {}), "peak": peak, "limit": MEMORY * GIB}


def main() -> None:
    """Run the jobs and write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=Path("large.json"))
    parser.add_argument("--job", action="append", choices=[*JOBS, *PEERS])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--peers", default="")
    parser.add_argument("--threads", default="1")
    given = parser.parse_args()
    found = json.loads(given.json.read_text())["jobs"] if given.json.exists() else {}
    for name in given.job or [*JOBS, *(PEERS if given.peers else ())]:
        if name in PEERS:
            one = peer(name, given.peers, given.threads)
        else:
            one = measured(name, given.data_dir, given.threads)
        found[name] = {**one, "machine": machine.record(None)}
        print(name, json.dumps(one), flush=True)
        content = {"schema": "fedscope/benchmark-large/1", "jobs": found}
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
