"""What the benchmarks of one checkpoint share: command line, samples, and a record that grows by groups."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import Source

Result = dict[str, Any]


def parser(description: str | None, *, batch_size: int, groups: str) -> argparse.ArgumentParser:
    """Return the command line, to which a benchmark adds its own options; ``groups`` is for --help."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--checkpoint", type=Path, required=True)
    found.add_argument("--data-dir", type=Path)
    found.add_argument("--json", type=Path, required=True, help="the record; other groups in it are kept")
    found.add_argument("--samples", type=int, default=1000)
    found.add_argument("--batch-size", type=int, default=batch_size)
    found.add_argument("--turns", type=int, default=5)
    found.add_argument("--only", nargs="+", help=groups)
    return found


def problem_of(options: argparse.Namespace) -> Problem:
    """Return the checkpoint's network, loss and samples."""
    source = Source(samples=options.samples, data_dir=options.data_dir, batch_size=options.batch_size)
    (problem,) = load([options.checkpoint], source)
    return problem


def measured(
    options: argparse.Namespace,
    name: str,
    problem: Problem,
    groups: Mapping[str, Callable[[], Result]],
    entry_of: Callable[[Result], Result],
) -> Result:
    """Measure the chosen groups, keep the record after each, and return what it has of the network.

    ``name`` is of the benchmark, as in the record's schema; ``entry_of`` says of a group's result what the
    record has of it beside samples and checkpoint.
    """
    record = json.loads(options.json.read_text()) if options.json.exists() else {}
    record["schema"] = f"fedscope/benchmark-{name}/1"
    entry: Result = record.setdefault(str(problem.description["model"]), {})
    for group in options.only or groups:
        about = {"samples": options.samples, "batch_size": options.batch_size, "checkpoint": problem.sha256}
        entry[group] = {**entry_of(groups[group]()), **about}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return entry
