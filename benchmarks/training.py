"""Training speed, side by side: the bare PyTorch loop, a papers' script, pfl, Flower and fedscope.

    python benchmarks/training.py --peers PEERS_PYTHON --data-dir DIR --json benchmarks/training.json

Every contestant is a process of its own and does the same work (``workloads.py``): same clients and data,
same network and initial weights, same number of gradient steps, which each reports and this harness compares.
Start-up, imports, reading data and one warm-up round are not counted; all that happens in later rounds is.
The contestants of a group take turns (A B C A B C …); the table shows medians, and a ratio is the median of
the ratios within a turn.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import machine
from tables import table
from work import COUNTS, write_work
from workloads import GROUPS, Contestant, Group, tiny

CONTESTANTS = Path(__file__).parent / "contestants"
TIMEOUT = 3600  # seconds for one contestant's turn; longer is a hang
Result = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the contestants find things."""

    peers: Path | None  # interpreter with pfl and Flower
    data_dir: Path | None
    scratch: Path


def main() -> None:
    """Measure the chosen groups, print each one's table, and keep the record after each."""
    options = arguments()
    record: dict[str, object] = {
        "schema": "fedscope/benchmark-training/1",
        "machine": machine.record(options.peers),
        "command": command(options),
        "repeats": options.repeats,
        "tiny": options.tiny,
    }
    groups: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="fedscope-bench-") as scratch:
        place = Place(options.peers, options.data_dir, Path(scratch))
        for group in GROUPS:
            if not any(group.name.startswith(prefix) for prefix in options.only):
                continue
            group = tiny(group) if options.tiny else group
            present = [c for c in group.contestants if not any(w in c.name for w in options.without)]
            group = replace(group, contestants=tuple(present))
            groups.append(measured(group, options.repeats, place))
            print(table(groups[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps({**record, "groups": groups}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, help="Python that has pfl and Flower; without it they sit out")
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-100's parquet files")
    parser.add_argument("--json", type=Path, help="file of the record")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="PREFIX", help="groups: bare/…, compute, …"
    )
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="PART", help="leave out contestants with PART in the name"
    )
    parser.add_argument("--tiny", action="store_true", help="try the harness; the times mean nothing")
    return parser.parse_args()


def command(options: argparse.Namespace) -> str:
    """Return the command with this machine's paths left out."""
    words = ["python benchmarks/training.py", f"--repeats {options.repeats}"]
    words += ["--peers PEERS_PYTHON"] if options.peers else []
    words += ["--data-dir DIR"] if options.data_dir else []
    words += [f"--only {' '.join(options.only)}"] if options.only != [""] else []
    return " ".join([*words, *(["--tiny"] if options.tiny else [])])


def measured(group: Group, repeats: int, place: Place) -> Result:
    """Let the contestants take turns on the group's work; return their results and medians."""
    work = place.scratch / "work.pt"
    expected = write_work(group, place.data_dir, work)
    turns: dict[str, list[Result]] = {c.name: [] for c in group.contestants if place.peers or not c.peer}
    for turn in range(repeats):
        for contestant in group.contestants:
            if contestant.name in turns:
                print(f"{group.name}, turn {turn + 1} of {repeats}: {contestant.name}", file=sys.stderr)
                turns[contestant.name].append(run(contestant, work, place))
                check(contestant, turns[contestant.name][-1], expected)
    ours = [c.name for c in group.contestants if c.ours]
    return {
        "name": group.name,
        "title": group.title,
        "settings": group.settings,
        "work": expected,
        "contestants": {name: summary(results, expected) for name, results in turns.items()},
        "speedups": {name: {other: ratio(turns, other, name) for other in turns} for name in ours},
    }


def run(contestant: Contestant, work: Path, place: Place) -> Result:
    """Run a contestant in its own process; return its JSON line.

    Raises:
        SystemExit: it failed; says what it wrote last.
    """
    line = [str(place.peers) if contestant.peer else sys.executable]
    if contestant.launched > 1:
        line += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={contestant.launched}"]
    line += [str(CONTESTANTS / contestant.script), str(work), *contestant.options]
    if contestant.ours and place.data_dir:
        line.append(f"--data-dir={place.data_dir}")
    variables = environment(contestant, place)
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    results = [text for text in done.stdout.splitlines() if text.startswith('{"rounds"')]
    if done.returncode or not results:
        raise SystemExit(f"{contestant.name} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    result: Result = json.loads(results[-1])
    return result


def environment(contestant: Contestant, place: Place) -> dict[str, str]:
    """Return the environment: the contestant's threads, no reports to anybody, no fedscope for the peers."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(contestant.threads)}
    if contestant.peer:
        variables.pop("PYTHONPATH", None)
        variables |= {
            "FLWR_HOME": str(place.scratch / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
    return variables


def check(contestant: Contestant, result: Result, expected: dict[str, int]) -> None:
    """Refuse a result of other work.

    Raises:
        ValueError: rounds, steps or samples differ from what the group asks for.
    """
    asked, did = ({name: counts[name] for name in COUNTS} for counts in (expected, result))
    if did != asked:
        raise ValueError(f"{contestant.name} did {did} where {asked} was asked")


def summary(results: list[Result], work: dict[str, int]) -> Result:
    """Return a contestant's medians beside its single results."""
    seconds = median(result["seconds"] for result in results)
    return {
        "seconds_per_round": seconds / work["rounds"],
        "samples_per_second": work["samples"] / seconds,
        "turns": results,
    }


def ratio(turns: dict[str, list[Result]], slow: str, fast: str) -> float:
    """Return how many times as fast ``fast`` is as ``slow``: the median over the turns."""
    pairs = zip(turns[slow], turns[fast], strict=True)
    return float(median(a["seconds"] / b["seconds"] for a, b in pairs))


if __name__ == "__main__":
    main()
