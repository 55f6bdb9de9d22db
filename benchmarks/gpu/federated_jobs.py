"""The runs of ``federated.py``, each a process of its own; one that fails is recorded as such.

Runs are cut short: rounds of fewer epochs and clients, of which the first, which records the CUDA graphs,
does not count. What grows with the steps is scaled to a full round: all phases of local training, and the
averaging, in whose time the last steps of a client end, so that the scaled seconds are rather too many than
too few. The measured seconds stand beside.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from work import write_work
from workloads import COMPUTE, OVERHEAD, tiny

PRESET = "fedalign/t1"
GROWS = ("data", "compute", "waiting", "aggregation")  # with the steps; on a GPU the host runs ahead
SMALL = {
    "dataset": "digits", "augmentation": "none", "model": "resnet_digits", "clients": 4, "batch_size": 16,
}  # fmt: skip
CONTESTANTS = Path(__file__).parents[1] / "contestants"
Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A run of `fedscope train`, cut short: fewer rounds, and a share of the clients in each."""

    method: str
    precision: str = "fp32"
    workers: int = 1
    participation: float = 0.25
    rounds: int = 3
    augmentation: str | None = None  # the preset's
    gradients: int = 1  # per step

    @property
    def name(self) -> str:
        """A name for the record and for the run's folder."""
        more = [f"{self.workers} workers"] * (self.workers > 1) + ["no augmentation"] * bool(
            self.augmentation
        )
        return ", ".join([self.method, self.precision, *more])


def jobs(workers: list[int]) -> list[Job]:
    """Return the runs, the most wanted first."""
    first = [Job("fedavg"), Job("fedavg", "bf16"), Job("fedalign"), Job("fedsam+man", gradients=2)]
    shared = [Job("fedavg", workers=count, participation=0.5) for count in workers if count > 1]
    plain = Job("fedavg", augmentation="none")
    # gradaug draws in each step, so that its steps are no CUDA graphs
    eager = Job("gradaug", participation=0.125, rounds=2)
    return [*first, eager, *shared, plain]


def trained(job: Job, given: argparse.Namespace, left: float, full: int) -> Result:
    """Run a job; return its measured and scaled seconds. ``full``: the steps of a whole round."""
    settings = {**(SMALL if given.tiny else {}), "method": job.method, "epochs": given.epochs}
    settings |= {"rounds": 2 if given.tiny else job.rounds, "save_clients": "none"}
    settings |= {"participation": 1.0 if given.tiny else job.participation}
    settings |= {"augmentation": job.augmentation} if job.augmentation else {}
    settings |= {"precision": job.precision, "workers": job.workers, "device": given.device}
    line = [sys.executable, "-m", "fedscope", "train", "--preset", PRESET, "--name", "run"]
    for name, value in settings.items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    line += ["--data-dir", str(given.data_dir)] if given.data_dir else []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as registry:
        _, failure = ran([*line, "--registry", registry], left)
        if failure:
            return {**asdict(job), "failed": failure}
        lines = (Path(registry) / "run" / "metrics.jsonl").read_text().splitlines()
    return {**asdict(job), "wall_seconds": time.perf_counter() - start, **scaled(job, lines, full)}


def scaled(job: Job, lines: list[str], full: int) -> Result:
    """Return the means of the rounds after the first, as measured and for a round of ``full`` steps."""
    records = [json.loads(line) for line in lines][1:]
    steps = mean(one["gradients"] for one in records) / job.gradients
    phases = {name: mean(one["seconds_in"][name] for one in records) for name in records[0]["seconds_in"]}
    training = sum(phases[name] for name in GROWS)
    return {
        "measured": {
            "seconds": [one["seconds"] for one in records], "seconds_in": phases, "steps": steps,
            "clients": [len(one["clients"]) for one in records],
        },
        "seconds_per_step": training / steps, "scaled": True, "steps": full,
        "seconds": training / steps * full + sum(phases.values()) - training,
        "peak_gpu_memory_bytes": records[-1].get("peak_gpu_memory_bytes"),
    }  # fmt: skip


def ran(line: list[str], left: float) -> tuple[str, str]:
    """Run a command of at most ``left`` seconds; return what it printed and, if it failed, why."""
    try:
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as error:
        return "", str(error)
    try:
        printed, said = process.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too, which would share the GPU with the next
        process.communicate()
        return "", f"stopped after {left:.0f} s"
    return printed, (said[-1000:] or f"exit code {process.returncode}") if process.returncode else ""


def beside_pfl(given: argparse.Namespace, left: float) -> Result:
    """Return what pfl and fedscope need for the rounds of one group of ``workloads.py``."""
    _, failure = ran([str(given.peers), "-c", "import pfl.aggregate.simulate, pfl.model.pytorch"], left)
    if failure:
        return {"failed": failure.strip().splitlines()[-1]}
    group = tiny(OVERHEAD) if given.tiny else COMPUTE
    group = replace(group, settings={**group.settings, "rounds": 4})
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.pt"
        found: Result = {"group": group.name, "work": write_work(group, given.data_dir, work)}
        ours = [sys.executable, str(CONTESTANTS / "fedscope_run.py"), str(work), "--device", given.device]
        ours += ["--data-dir", str(given.data_dir)] if given.data_dir else []
        lines = {
            "pfl, fp32": [str(given.peers), str(CONTESTANTS / "pfl_peer.py"), str(work)],
            "fedscope, fp32": ours,
            "fedscope, bf16": [*ours, "--precision", "bf16"],
        }
        for name, line in lines.items():
            printed, failure = ran(line, left)
            results = [text for text in printed.splitlines() if text.startswith('{"rounds"')]
            found[name] = json.loads(results[-1]) if results else {"failed": failure or "printed no result"}
    return found
