"""Federated training on one GPU in FedAlign's setting: seconds of a round, beside bare PyTorch loops and pfl.

    python benchmarks/gpu/federated.py --data-dir DIR --json benchmarks/gpu/federated.json

Table 1 of Mendieta et al. 2022 (preset ``fedalign/t1``): 16 clients, 20 local epochs, ResNet-56 on CIFAR-100.
The runs are cut short and scaled (``federated_jobs.py``); the loops are steps of the same network and batch
without all else (``loops.py``); pfl does the rounds of the group `compute` of ``workloads.py``.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import machine
from federated_jobs import PRESET, SMALL, Result, beside_pfl, jobs, trained
from loops import LOOPS, seconds_per_step
from tables import row

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.setup import federation
from fedscope.federated.setup.paper_presets import preset

PUBLISHED = 137.0  # seconds of a round of FedAvg on four RTX 2080 Ti, Mendieta et al. 2022, Table 1
SLACK = 30.0  # seconds that a job may run beyond the limit for starting one


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-100's parquet files")
    parser.add_argument("--json", type=Path, help="file of the record")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=1, help="local epochs of the cut rounds")
    parser.add_argument("--workers", default="1,2,4", help="processes that share the GPU, for fedavg")
    parser.add_argument("--steps", type=int, default=200, help="steps of a bare loop")
    parser.add_argument("--seconds", type=float, default=150, help="start no job after so long")
    parser.add_argument("--peers", type=Path, default=Path(sys.executable), help="Python that has pfl")
    parser.add_argument("--tiny", action="store_true", help="try the script; the times mean nothing")
    return parser.parse_args()


def loops(given: argparse.Namespace, prepared: federation.Federation) -> Result:
    """Return each bare loop's seconds per step; on a CPU there are no graphs."""
    settings, split = prepared.settings.model_dump(), prepared.training
    count = 8 * settings["batch_size"]
    images = prepared.pipeline.test(split.images, torch.arange(count)).to(given.device)
    labels = split.labels[:count].to(given.device)
    found: Result = {}
    for name, loop in LOOPS.items():
        if loop.graph and given.device == "cpu":
            continue
        steps = 3 if given.tiny else given.steps
        try:
            model = prepared.model.to(given.device)
            found[name] = {"seconds_per_step": seconds_per_step(loop, model, images, labels, settings, steps)}
        except RuntimeError as error:
            found[name] = {"failed": str(error)[-500:]}
    return found


def table(record: Result) -> str:
    """Return the runs and the loops as Markdown."""
    lines = [row(["run", "s per step", "of the CUDA graph's", "s per round", "of 137 s", "GPU memory, GB"])]
    lines.append(row(["---", *["---:"] * 5]))
    for name, one in record["jobs"].items():
        if "failed" in one:
            lines.append(row([name, f"failed: {one['failed'].strip().splitlines()[-1]}"]))
            continue
        step, memory = one["seconds_per_step"], sum(one["peak_gpu_memory_bytes"] or [0]) / 1e9
        ratio = f"× {one['ratio_to_cuda_graph']:.2f}" if one["ratio_to_cuda_graph"] else ""
        share = f"{one['seconds'] / PUBLISHED:.2f}"
        lines.append(row([name, f"{step:.5f}", ratio, f"{one['seconds']:.1f}", share, f"{memory:.2f}"]))
    for name, one in record["loops"].items():
        step = one.get("seconds_per_step")
        lines.append(row([name, f"{step:.5f}" if step else f"failed: {one['failed']}"]))
    for name, one in record["pfl"].items():
        if name.startswith(("pfl", "fedscope")):
            per_round = f"{one['seconds'] / one['rounds']:.3f}" if "seconds" in one else one["failed"][-200:]
            lines.append(row([f"{record['pfl']['group']}: {name}", "", "", per_round]))
    if "failed" in record["pfl"]:
        lines.append(row(["pfl", f"failed: {record['pfl']['failed']}"]))
    return "\n".join(lines)


def compared(found: Result, floors: Result) -> Result:
    """Return a run's record with its step's ratio to the bare CUDA graph's, None where one is missing."""
    floor = floors.get(f"CUDA graph, {found.get('precision')}", {}).get("seconds_per_step")
    step = found.get("seconds_per_step")
    return {**found, "ratio_to_cuda_graph": step / floor if step and floor else None}


def main() -> None:
    """Measure the loops, the runs and pfl; keep the record after each."""
    given, began = arguments(), time.perf_counter()
    chosen, options, _ = preset(PRESET).resolve(SMALL if given.tiny else {}, {})
    prepared = federation.prepare(parse(Settings, chosen, "settings"), options, given.data_dir)
    local = federation.local_settings(prepared.settings, prepared.weights)
    full = sum(local.round_steps(len(held)) for held in prepared.rows)
    record: Result = {
        "schema": "fedscope/benchmark-gpu-training/1",
        "command": "python benchmarks/gpu/federated.py"
        + " --data-dir DIR" * bool(given.data_dir) + f" --epochs {given.epochs}",
        "machine": machine.record(None),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "settings": {"preset": PRESET, "epochs": given.epochs, "tiny": given.tiny, "steps_per_round": full},
        "published_seconds_per_round": PUBLISHED,
        "loops": loops(given, prepared), "jobs": {}, "pfl": {},
    }  # fmt: skip
    work: dict[str, Callable[[float], Result]] = {
        job.name: lambda left, job=job: trained(job, given, left, full)  # type: ignore[misc]
        for job in jobs([int(count) for count in given.workers.split(",")])
    }
    work["pfl"] = lambda left: beside_pfl(given, left)
    for name, measure in work.items():
        left = given.seconds - (time.perf_counter() - began)
        found = measure(left + SLACK) if left > 0 else {"failed": "not started: no time left"}
        if name == "pfl":
            record["pfl"] = found
        else:
            record["jobs"][name] = compared(found, record["loops"])
        print(f"{name}: {found.get('failed', 'done')}"[:300], file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


if __name__ == "__main__":
    main()
