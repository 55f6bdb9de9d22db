"""What the commands measure on a GPU, beside the CPU's numbers of the same samples, and twice on the GPU.

    python benchmarks/gpu/agreement.py --json benchmarks/gpu/agreement.json [--data-dir DIR]

Every command runs on a copy of a committed run: on the CPU, on the GPU, and on the GPU once more, all side by
side, so that no seconds are kept. With CIFAR-100's files in DIR the `convnet_cifar` of MAN's Table 2 is
measured too.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import machine
from tables import row

HOME = Path(__file__).parents[2]
PLACES = ("cpu", "gpu", "again")
Result = dict[str, Any]
Numbers = dict[str, tuple[Callable[[Any], Any], float]]
"""Quantity ↦ where its numbers are in a record, and what they may differ by, relative to the largest."""


@dataclass(frozen=True)
class Job:
    """A command on a run, and what is compared of its record."""

    run: str
    command: str
    numbers: Numbers
    data: bool = False  # needs the real CIFAR-100


CURVATURE: Numbers = {
    "λ_max": (lambda found: found["lambda_max"]["value"], 1e-3),
    "eigenvalues": (lambda found: [one["value"] for one in found["eigenvalues"]], 1e-3),
    "trace": (lambda found: found["trace"]["samples"], 1e-3),
}
DENSITY: Numbers = {
    "density": (lambda found: [one["value"] for one in found["density"]["moments"]], 1e-3),
}
PLANE: Numbers = {"losses": (lambda found: found["loss"], 1e-5)}
SHARPNESS: Numbers = {
    "sharpness": (lambda found: [one["value"] for one in found["quantities"]], 1e-2),
}
CLIENTS: Numbers = {
    "H_N": (lambda found: found["cross_client"]["H_N"]["tensor"]["value"], 1e-3),
    "H_D": (lambda found: found["cross_client"]["H_D"]["tensor"]["value"], 1e-3),
}
COHORT: Numbers = {
    "λ_max of each": (
        lambda found: [one["value"] for one in found["flatness"][1]["cells"][0]["clients"]],
        1e-3,
    ),
    "alignment": (
        lambda found: [one["global"]["rayleigh"]["value"] for one in found["alignment"]["clients"]],
        1e-3,
    ),
}
DIGITS, CONVNET = "reference-fedavg", "papers/man-t2-delta0.3-fedavg-s83217-f663e477"
SAMPLES = "--samples 256 --batch-size 16"
JOBS = [
    Job(DIGITS, f"hessian {{}} --top-k 3 --both-ends --clients {SAMPLES}", CURVATURE | CLIENTS),
    Job(DIGITS, f"hessian {{}} --operator ggn {SAMPLES}", CURVATURE),
    Job(DIGITS, "hessian {} --density --samples 64 --batch-size 4", CURVATURE | DENSITY),
    Job(DIGITS, f"plot-landscape {{}} --directions random --grid 9 {SAMPLES} --out plane.png", PLANE),
    Job(DIGITS, f"sharpness {{}} {SAMPLES}", SHARPNESS),
    Job(DIGITS, f"clients {{}} --only loss,lambda_max,alignment {SAMPLES}", COHORT),
    Job(DIGITS, f"report {{}} {SAMPLES} --out report.html", {}),
    Job(CONVNET, "hessian {} --samples 1024", CURVATURE, data=True),
    Job(CONVNET, "plot-landscape {} --directions random --grid 7 --samples 1024 --out a.png", PLANE, True),
]


def numbers(value: Any) -> list[float]:
    """Return the numbers of a nested list."""
    return [float(value)] if not isinstance(value, list) else [x for part in value for x in numbers(part)]


def ran(job: Job, place: str, device: str, data_dir: Path | None, scratch: Path) -> Any:
    """Return the command's record on a copy of the run; None where it failed, after what it said."""
    registry = scratch / f"{JOBS.index(job)}-{place}"
    shutil.copytree(HOME / "checkpoints" / job.run, registry / Path(job.run).name)
    words = job.command.format(Path(job.run).name).split()
    words += ["--registry", str(registry), "--device", "cpu" if place == "cpu" else device, "--threads", "2"]
    words += ["--json", "record.json"] if job.numbers else []
    words += ["--data-dir", str(data_dir)] if job.data else []
    done = subprocess.run(
        [sys.executable, "-m", "fedscope", *words], cwd=registry, capture_output=True, text=True
    )
    if done.returncode:
        print(f"{job.command} on {place}:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    return json.loads((registry / "record.json").read_text()) if job.numbers else {}


def compared(job: Job, found: dict[str, Any]) -> Result:
    """Return a command's record: largest difference of each quantity, and whether its bits came again."""
    entry: Result = {"run": job.run, "command": f"fedscope {job.command.format('RUN')}", "quantities": {}}
    entry["failed"] = [place for place, record in found.items() if record is None]
    for name, (part, most) in job.numbers.items() if not entry["failed"] else ():
        cpu, gpu, again = (numbers(part(found[place])) for place in PLACES)
        scale = max(map(abs, cpu))
        differences = [abs(a - b) / scale for a, b in zip(cpu, gpu, strict=True)]
        entry["quantities"][name] = {
            "cpu": cpu[0], "gpu": gpu[0], "numbers": len(cpu), "relative_difference": max(differences),
            "allowed": most, "same_bits_twice": gpu == again,
        }  # fmt: skip
    return entry


def main() -> None:
    """Run all commands side by side, compare, and write the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-100's files")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="cuda", help="another one tries this script")
    parser.add_argument("--only", default="", metavar="COMMAND", help="hessian, clients, …")
    given = parser.parse_args()
    jobs = [job for job in JOBS if (given.data_dir or not job.data) and job.command.startswith(given.only)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(8) as pool:
        pending = [
            {
                place: pool.submit(ran, job, place, given.device, given.data_dir, Path(folder))
                for place in PLACES
            }
            for job in jobs
        ]
        entries = [
            compared(job, {place: one.result() for place, one in places.items()})
            for job, places in zip(jobs, pending, strict=True)
        ]
    content = {
        "schema": "fedscope/benchmark-gpu-agreement/1",
        "command": "python benchmarks/gpu/agreement.py" + (" --data-dir DIR" if given.data_dir else ""),
        "machine": machine.record(None),
        "commands": entries,
    }
    given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(row(["run", "quantity", "CPU", "GPU", "differs by", "allowed", "same bits twice"]))
    print(row(["---"] * 7))
    for entry in entries:
        for name, one in entry["quantities"].items():
            cells = [f"{one['cpu']:.6g}", f"{one['gpu']:.6g}", f"{one['relative_difference']:.1e}"]
            print(row([entry["run"], name, *cells, f"{one['allowed']:.0e}", str(one["same_bits_twice"])]))
        if entry["failed"] or not entry["quantities"]:
            print(row([entry["run"], entry["command"], f"failed: {entry['failed']}"]))
    differ = [o for e in entries for o in e["quantities"].values() if o["relative_difference"] > o["allowed"]]
    sys.exit(bool(differ or any(entry["failed"] for entry in entries)))


if __name__ == "__main__":
    main()
