"""`fedscope train`: run a federated method and register its checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fedscope.cli.options import completion, config, shared
from fedscope.cli.options.command import Command
from fedscope.cli.options.settings_options import settings
from fedscope.cli.options.shared import flags_given
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows import catalogues

if TYPE_CHECKING:
    from fedscope.workflows.train.train_request import TrainedRun

GROUPS = {
    "Most used": ("--method", "--dataset", "--model", "--clients", "--rounds", "--name"),
    "Experiment": ("--preset", "--config", "--set", "--reading", "--seed", "--seeds"),
    "Data": ("--test-data", "--loss", "--data-dir", "--augmentation", "--train-samples", "--test-samples"),
    "Clients": ("--partition", "--alpha", "--exhausted", "--phi", "--rho", "--shards",
                "--classes-per-client", "--participation", "--sampling", "--memory"),
    "Local training": ("--epochs", "--local-steps", "--stragglers", "--straggler-min", "--batch-size",
                       "--drop-last", "--optimizer", "--momentum", "--nesterov", "--adam-beta1",
                       "--adam-beta2", "--adam-eps", "--optimizer-state", "--weight-decay", "--clip"),
    "Learning rate": ("--lr", "--lr-schedule", "--lr-decay", "--lr-step", "--lr-min", "--lr-warmup"),
    "Network": ("--lora", "--head", "--shortcut"),
    "Server and evaluation": ("--weights", "--validation", "--evaluate-on", "--eval-model",
                              "--eval-drop-last", "--evaluate-every", "--target", "--probe-curvature",
                              "--probe-samples"),
    "Concept shift": ("--shift", "--shift-probability", "--shift-sequence", "--shift-metric"),
    "Machine": ("--device", "--workers", "--threads", "--precision", "--compile", "--stack"),
    "What is kept": ("--registry", "--save-clients", "--keep-every", "--keep-steps", "--resume", "--log",
                     "--json"),
    "Trying out": ("--dry-run", "--clients-limit", "--steps-limit"),
}  # fmt: skip
EXAMPLES = {
    "fedscope train": "FedAvg on the bundled digits",
    "fedscope train --method fedprox --set prox.mu=0.1 --alpha 0.1 --name prox": "a method and its option",
    "fedscope train --preset fedalign/t1 --method fedavg --data-dir data": "a row of a paper's table",
    "fedscope train --model mine:Net --data mine:clients": "a network and data of your own, by import path",
    "fedscope train --model mine:Net --data mine:curves --loss mine:loss": "a task without classes",
    "fedscope train --seeds 0,1,2 --name three": "a run per seed, with mean and spread",
    "fedscope train --resume --name prox": "an interrupted run, continued",
    "fedscope train --preset fedalign/t1 --dry-run": "how long it would take",
}


@click.command("train", cls=Command, groups=GROUPS, examples=EXAMPLES)
@click.option(
    "--config", type=click.Path(path_type=Path), is_eager=True, expose_value=False, callback=config.read,
    metavar="FILE.toml", help="Take options from a file; `fedscope runs export --format config` writes one.",
)  # fmt: skip
@click.option(
    "--preset",
    shell_complete=completion.names_of("preset"),
    help="Start from a paper's experiment; `fedscope presets list` has them.",
)
@settings(aliases={"dataset": "--data"})
@shared.data_dir
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the method, such as man.zeta=0.1.",
)
@click.option("--seeds", type=shared.SEEDS, metavar="A,B,…", help="Train one run per seed: NAME-sA, NAME-sB…")
@shared.device
@click.option(
    "--workers",
    "count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that share the clients; at the same --threads they change no bit of the result.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="CPU threads of each worker; the bits depend on them. [default: the cores, divided by the "
    "workers; with --resume, as before]",
)
@shared.registry
@click.option("--name", shell_complete=completion.runs, help="Name of the run. [default: METHOD-DATASET]")
@click.option("--resume", is_flag=True, help="Continue the run --name; a finished one with more --rounds.")
@click.option("--log", "loggers", multiple=True, metavar="NAME", shell_complete=completion.loggers,
              help="Send the metrics to tensorboard, wandb, mlflow or your own MODULE:FUNCTION too; may be "
              "repeated.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Keep nothing; time the first rounds and say what all would take.")  # fmt: skip
@shared.json_target
def command(
    preset: str | None,
    data_dir: Path | None,
    given: tuple[str, ...],
    device: str,
    count: int,
    threads: int | None,
    registry: Path,
    name: str | None,
    resume: bool,
    loggers: tuple[str, ...],
    dry_run: bool,
    json_target: str | None,
    seeds: tuple[int, ...] | None,
    **fields: object,
) -> None:
    """Train a federated method; without options, FedAvg on the bundled digits.

    On several machines start it with torchrun instead of --workers; every process takes the same options.
    """
    for kind in ("method", "dataset", "model"):
        catalogues.check(kind, fields.get(kind))
    catalogues.check("preset", preset)
    ctx = click.get_current_context()
    if seeds and ctx.get_parameter_source("seed") is ParameterSource.COMMANDLINE:
        raise UserError("--seed is one run's, and --seeds are several; leave one of them out")
    options_given = ctx.meta.get(config.OPTIONS, {}) | _pairs(given)
    from fedscope.workflows.train.train_request import TrainRequest  # torch: not for --help
    from fedscope.workflows.train.train_runs import train, trial

    request = TrainRequest(
        registry=registry,
        settings={name: value for name, value in fields.items() if value is not None},
        options=options_given,
        preset=preset,
        name=name,
        seeds=seeds,
        resume=resume,
        data_dir=data_dir,
        device=device,
        threads=threads,
        workers=count,
        loggers=tuple(dict.fromkeys(loggers)),
        named=flags_given(ctx),
    )
    if dry_run:
        tried = trial(request, console.REPORTER)
        if not console.in_json(json_target, asdict(tried)):
            console.show(("line", line) for line in tried.described())
        return
    trained = train(request, console.REPORTER)
    if not trained:  # another process of torchrun's prints the result
        return
    entries = [one.entry() for one in trained]
    if not console.in_json(json_target, entries if seeds else entries[0]):
        if seeds:
            _show_seeds(trained)
        elif not trained[0].diverged:
            _show(trained[0])
    _refuse_diverged(trained)


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Split ``OPTION=VALUE`` texts."""
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in result:
            raise UserError(f"--set takes each option once as OPTION=VALUE, not {text!r}")
        result[name] = value
    return result


def _show(result: "TrainedRun") -> None:
    cells = {
        "run": result.run,
        "rounds": str(result.rounds),
        "final accuracy": console.percent(result.accuracy),
        "best": console.percent(result.best_accuracy),
        "best by T/2": console.percent(result.best_half_accuracy),
    }
    if result.accuracy is None:  # of a task without classes
        cells = {"run": result.run, "rounds": str(result.rounds), "test loss": console.cell(result.loss)}
    if result.target is not None:
        cells[f"rounds to {console.percent(result.target)}"] = result.reached
    if result.shift_accuracy is not None:
        cells["under shift"] = console.percent(result.shift_accuracy)
    cells["checkpoint"] = result.final
    console.print_table(
        "Trained", list(cells), [list(cells.values())], [f"best: chosen on {result.chosen_on}"]
    )


def _show_seeds(results: Sequence["TrainedRun"]) -> None:
    """Print the runs of several seeds, and the mean ± standard deviation over those that did not diverge."""
    sound = [result for result in results if not result.diverged]
    classes = not sound or any(one.accuracy is not None for one in sound)
    names, shown = (["final accuracy", "best"], console.percent) if classes else (["test loss"], console.cell)

    def numbers(result: "TrainedRun") -> tuple[float | None, ...]:
        return (result.accuracy, result.best_accuracy) if classes else (result.loss,)

    rows = [
        [
            result.run, str(result.seed), str(result.rounds),
            *(["diverged"] * len(names) if result.diverged else map(shown, numbers(result))),
        ]
        for result in results
    ]  # fmt: skip
    spreads = [_spread([numbers(one)[place] for one in sound], shown) for place in range(len(names))]
    rows.append([f"mean ± sd of {len(sound)}", "", "", *spreads])
    columns = ["run", "seed", "rounds", *names]
    console.print_table("Trained", columns, rows, [f"best: chosen on {results[0].chosen_on}"])


def _spread(values: Sequence[float | None], shown: Callable[[object], str]) -> str:
    """Return the mean ± the standard deviation (n − 1), which takes two; and of how many, if not of all."""
    known = [value for value in values if value is not None and not isnan(value)]
    if not known:
        return "–"
    deviation = shown(stdev(known)) if len(known) > 1 else "–"
    return f"{shown(mean(known))} ± {deviation}{f' of {len(known)}' if len(known) < len(values) else ''}"


def _refuse_diverged(results: Sequence["TrainedRun"]) -> None:
    """End with exit code 2 where a run diverged: all of it is kept, and the user can mend it."""
    diverged = [result for result in results if result.diverged]
    if diverged:
        which = ", ".join(f"{result.run} in round {result.rounds}" for result in diverged)
        mend = f"train anew with --lr below {diverged[0].lr:g}, or with --clip"
        raise UserError(f"loss or weights not finite: {which} diverged, and is kept as it is; {mend}")
