"""What ``fedscope hessian --dry-run`` says beside what the command then takes, for ten measurements.

    python benchmarks/plan.py --json benchmarks/plan.json [--job NAME]…

Every job is two processes: the plan, and the measurement, whose largest resident size the system tells when
it ends (``wait4``, what ``getrusage`` reports). Each writes its JSON to a file. The jobs are in
``plan_jobs.py``; the networks are trained for some steps on generated data. A ratio is planned over true.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.resolve()
MEMORY = 0.2  # how far the truth may be above the plan, which is of a basis of 64 rows
WEIGHTS = "import sys, torch, plan_jobs as p; torch.save(p.trained(p.JOBS[sys.argv[1]]), sys.argv[2])"


def child(
    arguments: list[str], folder: Path, *, python: str = sys.executable, said: Path | None = None
) -> int:
    """Run Python with arguments in a folder; return the largest resident size in bytes.

    What it prints goes to the file ``said``; without one, it must end well.
    """
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (said or Path(os.devnull)).open("w") as out:
        process = subprocess.Popen(
            [python, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": path},
            stdout=out, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert process.stderr
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not said:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}:\n{errors}")
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def compared(name: str, model: str, data: str, options: list[str], folder: Path) -> dict[str, Any]:
    """Return the plan and the truth of one job."""
    child(["-c", WEIGHTS, name, "w.pt"], folder)
    own = ["--model", f"plan_jobs:{model}", "--data", f"plan_jobs:{data}", "--threads", "1", *options]
    command = ["-m", "fedscope", "hessian", "w.pt", *own]
    child([*command, "--dry-run", "--json", "plan.json"], folder)
    peak = child([*command, "--recompute", "--json", "record.json"], folder)
    plan, record = (json.loads((folder / f).read_text()) for f in ("plan.json", "record.json"))
    found = {
        "options": options,
        "parameters": plan["parameters"],
        "samples": plan["samples"],
        "memory": {"planned": plan["memory"], "true": peak},
        "products": {"typical": plan["products"], "true": record["matvecs"]},
        "seconds": {"typical": plan["seconds"], "true": record["seconds"]},
        "basis": plan["basis"],
        "limit": plan["limit"],
    }
    found["memory"]["ratio"] = plan["memory"] / peak
    found["within"] = peak <= (1 + MEMORY) * plan["memory"]
    return found


def main() -> None:
    """Run the jobs and write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=Path("plan.json"))
    parser.add_argument("--job", action="append")
    given = parser.parse_args()
    import machine  # torch, which a child's size would not show, is imported after nothing is measured
    import plan_jobs

    kept = given.job and given.json.exists()  # jobs that are not named stay as they are
    found: dict[str, Any] = json.loads(given.json.read_text())["jobs"] if kept else {}
    for name in given.job or plan_jobs.JOBS:
        job = plan_jobs.JOBS[name]
        with tempfile.TemporaryDirectory() as folder:
            found[name] = compared(name, job.model, job.data, list(job.options), Path(folder))
        shown = {part: found[name][part] for part in ("memory", "products", "seconds")}
        print(name, json.dumps(shown), flush=True)
    content = {
        "schema": "fedscope/benchmark-plan/1",
        "machine": machine.record(None),
        "bounds": {"memory": MEMORY},
        "jobs": found,
    }
    given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
