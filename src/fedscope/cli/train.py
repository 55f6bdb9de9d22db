"""`fedscope train`: run a federated method and register its checkpoints."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import torch
from pydantic_core import PydanticUndefined

from fedscope.checkpoints.registry import Registry, Run, checked_name
from fedscope.checkpoints.schema import Settings, parse
from fedscope.cli import console, options
from fedscope.errors import UserError
from fedscope.federated import workers
from fedscope.federated.federation import Federation, open_run, prepare
from fedscope.federated.rounds import Metrics, assist, train
from fedscope.federated.tensorboard import scalars

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def setting(flag: str, kind: Any, help: str) -> Decorator:
    """Return the click option of one field of :class:`Settings`, with the field's own default in the help."""
    default = Settings.model_fields[flag.split("/")[0].strip("-").replace("-", "_")].default
    shown = "" if default in (None, PydanticUndefined) else f" [default: {default}]"
    return click.option(flag, type=kind, default=None, help=help + shown)


@click.command("train")
@setting("--method", str, "A method, or a sum such as feddyn+man; `fedscope methods list` has them.")
@setting("--dataset", str, "digits, synthetic, cifar10 or cifar100.")
@options.data_dir
@setting("--model", str, "Network. [default: the data set's]")
@setting("--head", bool, "Projection head before the classifier: true or false. [default: the method's]")
@setting(
    "--shortcut", click.Choice(["A", "B"]), "Shortcuts of resnet20: padding, or projection. [default: A]"
)
@setting("--augmentation", str, "Pipeline of the data set: fedalign, man or none. [default: its first]")
@setting("--partition", str, "iid, dirichlet_balanced or dirichlet_equal.")
@setting("--alpha", float, "Dirichlet concentration; smaller is more heterogeneous.")
@setting("--clients", int, "Number of clients N.")
@setting("--participation", float, "Share of the clients that take part in a round.")
@setting("--sampling", click.Choice(["fixed_fraction", "bernoulli"]), "How the participants are drawn.")
@setting("--rounds", int, "Communication rounds T.")
@setting("--epochs", int, "Local epochs E.")
@setting("--batch-size", int, "Local batch size B.")
@setting("--drop-last", bool, "Leave out an epoch's last, smaller batch: true or false.")
@setting("--lr", float, "Local learning rate in the first round.")
@setting("--lr-decay", float, "Factor on the learning rate after each round.")
@setting("--momentum", float, "Momentum of the local SGD.")
@setting("--nesterov", bool, "Nesterov momentum: true or false.")
@setting(
    "--optimizer-state",
    click.Choice(["round", "client"]),
    "Momentum begins anew in each round, or is kept by each client.",
)
@setting("--weight-decay", float, "Weight decay, applied after clipping.")
@setting("--clip", float, "Clip the gradient's global norm at this value. [default: no clipping]")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the method, such as man.zeta=0.1.",
)
@setting("--precision", click.Choice(["fp32", "bf16"]), "bf16: forward and backward pass under autocast.")
@click.option("--compile", "compile", is_flag=True, default=None, help="Compile the network (torch.compile).")
@setting("--stack", int, "Train up to K clients of equal size as one batched computation; for small models.")
@setting("--train-samples", int, "Train on a random part of this many samples. [default: all]")
@setting("--test-samples", int, "Evaluate on a random part of this many samples. [default: all]")
@setting(
    "--weights",
    click.Choice(["n_k", "n_used", "uniform"]),
    "Clients' weights in the mean: their samples, those an epoch uses, or equal. [default: the method's]",
)
@setting("--reading", click.Choice(["paper", "code"]), "Where paper and published code disagree.")
@setting("--seed", int, "Seed of every random stream.")
@options.device
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
@options.registry
@click.option("--name", help="Name of the run. [default: METHOD-DATASET]")
@setting("--save-clients", click.Choice(["last", "all", "none"]), "Which of the clients' uploads to keep.")
@setting("--keep-every", int, "Also keep the global model every K rounds.")
@click.option("--resume", is_flag=True, help="Continue the run --name (a finished one is left as it is).")
@click.option(
    "--tensorboard", is_flag=True, help="Write the metrics for TensorBoard too, into the run's folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
def command(
    data_dir: Path | None,
    given: tuple[str, ...],
    device: str,
    count: int,
    threads: int | None,
    registry: Path,
    name: str | None,
    resume: bool,
    tensorboard: bool,
    as_json: bool,
    **fields: object,
) -> None:
    """Train a federated method; without options, FedAvg on the bundled digits.

    On several machines start it with torchrun instead of --workers; every process takes the same options.
    """
    fields = {key: value for key, value in fields.items() if value is not None}
    if resume and name and threads is None:  # the bits depend on them
        threads = Registry(registry).run(name).manifest().settings.threads
    chosen = options.use_device(device, threads, count, workers.place())
    result = train_run(
        fields, pairs(given), registry, name,
        device=chosen, count=count, resume=resume, data_dir=data_dir, tensorboard=tensorboard,
    )  # fmt: skip
    if not result:
        return  # rank 0 says it
    if as_json:
        console.write_json("-", result)
    else:
        best, final = float(str(result["best_accuracy"])), float(str(result["accuracy"]))
        rows = [
            [str(result["run"]), str(result["rounds"]), f"{final:.2%}", f"{best:.2%}", str(result["final"])]
        ]
        console.print_table("Trained", ["run", "rounds", "final accuracy", "best", "checkpoint"], rows)


def train_run(
    fields: dict[str, object],
    given: dict[str, str],
    root: Path,
    name: str | None,
    *,
    device: torch.device,
    count: int = 1,
    resume: bool = False,
    data_dir: Path | None = None,
    tensorboard: bool = False,
) -> dict[str, object]:
    """Train with the given fields of :class:`Settings`; return what ``train --json`` prints, on rank 0."""
    if resume and name is None:
        raise UserError("--resume needs the --name of the run to continue")
    where = {"device": str(device), "threads": torch.get_num_threads()}
    settings = parse(Settings, {**fields, **where}, "option")
    if workers.under_torchrun():
        if count > 1:
            raise UserError("torchrun already starts the workers; leave --workers out")
        with workers.joined() as group:
            federation = prepare(settings, given, data_dir)
            if group.rank:
                assist(group, federation)
                return {}
            run = _open(federation, Registry(root), name, resume=resume)
            with run.held():
                return _lead(group, federation, run, tensorboard=tensorboard)
    federation = prepare(settings, given, data_dir)  # before the workers: what is wrong is said once
    run = _open(federation, Registry(root), name, resume=resume)
    with (
        run.held(),
        workers.started(count, device, settings.threads, assist_run, settings, given, data_dir) as group,
    ):
        return _lead(group, federation, run, tensorboard=tensorboard)


def assist_run(
    group: workers.Workers, settings: Settings, given: dict[str, str], data_dir: Path | None
) -> None:
    """Be a worker of the run that rank 0 trains."""
    assist(group, prepare(settings, given, data_dir))


def _open(federation: Federation, registry: Registry, name: str | None, *, resume: bool) -> Run:
    settings = federation.settings
    if federation.dataset.note:
        console.note(f"{settings.dataset}: {federation.dataset.note}")
    name = checked_name(name) if name else registry.free_name(f"{settings.method}-{settings.dataset}")
    return open_run(federation, registry, name, resume=resume)


def _lead(
    group: workers.Workers, federation: Federation, run: Run, *, tensorboard: bool
) -> dict[str, object]:
    """Train as rank 0, telling how far it is."""
    rounds = federation.settings.rounds
    with (
        console.progress(f"{run.name}: round", lines=True) as report,
        scalars(run.folder / "tensorboard") if tensorboard else nullcontext() as board,
    ):

        def show(m: Metrics) -> None:
            loss = "not finite" if m["loss"] is None else f"{m['loss']:.4f}"
            report(int(str(m["round"])), rounds, f"accuracy {m['accuracy']:.2%}, test loss {loss}")
            if board:
                board(m)

        metrics = train(federation, run, show, group)
    diverged = [m["round"] for m in metrics if m["loss"] is None or m["train_loss"] is None]
    if diverged:
        console.note(
            f"the loss was not finite in {len(diverged)} rounds, first in round {diverged[0]}; lower --lr"
        )
    accuracies = [float(str(m["accuracy"])) for m in metrics]
    return {
        "run": run.name,
        "registry": str(run.folder.parent),
        "final": str(run.final),
        "best": str(run.best),
        "accuracy": accuracies[-1],
        "best_accuracy": max(accuracies),
        "rounds": len(metrics),
    }


def pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Split ``OPTION=VALUE`` texts.

    Raises:
        UserError: one has no ``=`` or an option stands twice.
    """
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in result:
            raise UserError(f"--set takes each option once as OPTION=VALUE, not {text!r}")
        result[name] = value
    return result
