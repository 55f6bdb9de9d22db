"""What `fedscope train` prints of its runs: one, or one for each seed with their mean."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from fedscope.cli import console
from fedscope.federated.server.summary import reached

Result = dict[str, Any]


def show(result: Result) -> None:
    """Print one run's summary as a table."""
    cells = {
        "run": result["run"],
        "rounds": str(result["rounds"]),
        "final accuracy": console.percent(result["accuracy"]),
        "best": console.percent(result["best_accuracy"]),
        "best by T/2": console.percent(result["best_half_accuracy"]),
    }
    if "target" in result:
        cells[f"rounds to {console.percent(result['target'])}"] = reached(result)
    if "shift_accuracy" in result:
        cells["under shift"] = console.percent(result["shift_accuracy"])
    cells["checkpoint"] = result["final"]
    console.print_table("Trained", list(cells), [list(cells.values())], [_chosen(result)])


def show_seeds(results: Sequence[Result]) -> None:
    """Print the runs of several seeds, and the mean ± standard deviation over those that did not diverge."""
    sound = [result for result in results if result["state"] != "diverged"]
    rows = [
        [
            result["run"], str(result["seed"]), str(result["rounds"]),
            *map(console.percent, (result["accuracy"], result["best_accuracy"])),
        ]
        if result in sound
        else [result["run"], str(result["seed"]), str(result["rounds"]), "diverged", "diverged"]
        for result in results
    ]  # fmt: skip
    accuracies = (_spread([result[key] for result in sound]) for key in ("accuracy", "best_accuracy"))
    rows.append([f"mean ± sd of {len(sound)}", "", "", *accuracies])
    columns = ["run", "seed", "rounds", "final accuracy", "best"]
    console.print_table("Trained", columns, rows, [_chosen(results[0])])


def _chosen(result: Result) -> str:
    return f"best: chosen on {result['chosen_on']}"


def _spread(values: Sequence[float]) -> str:
    """Return the mean ± the standard deviation (n − 1), which takes two values."""
    if not values:
        return "–"
    return f"{mean(values):.2%} ± {f'{stdev(values):.2%}' if len(values) > 1 else '–'}"
