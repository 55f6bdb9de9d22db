"""`fedscope train`: run a federated method and register its checkpoints."""

from pathlib import Path

import click
from click.core import ParameterSource

from fedscope.cli import config, options
from fedscope.cli.command import Command
from fedscope.cli.settings import setting
from fedscope.errors import UserError


@click.command("train", cls=Command)
@click.option(
    "--config", type=click.Path(path_type=Path), is_eager=True, expose_value=False, callback=config.read,
    metavar="FILE.toml", help="Take options from a file; `fedscope runs export --format config` writes one.",
)  # fmt: skip
@click.option("--preset", help="Start from a paper's experiment; `fedscope presets list` has them.")
@setting("--method", str, "A method, or a sum such as feddyn+man; `fedscope methods list` has them.")
@setting("--dataset", str, "A data set; `fedscope data list` has them.")
@options.data_dir
@setting("--model", str, "Network. [default: the data set's]")
@setting("--head", bool, "Projection head before the classifier: true or false. [default: the method's]")
@setting(
    "--shortcut", click.Choice(["A", "B"]), "Shortcuts of resnet20: padding, or projection. [default: A]"
)
@setting(
    "--augmentation", str, "Pipeline of the data set, such as fedalign, man or none. [default: its first]"
)
@setting(
    "--partition", str, "Who holds what: iid, dirichlet_balanced, dirichlet_equal… (docs/partitions.md)."
)
@setting("--alpha", float, "Dirichlet concentration; smaller is more heterogeneous.")
@setting("--exhausted", click.Choice(["redraw", "refill"]), "dirichlet_equal: when a class is used up.")
@setting("--phi", float, "longtail_stateless: share of the data that a client draws.")
@setting("--rho", float, "longtail_stateless: the rarest class over the most frequent.")
@setting("--clients", int, "Number of clients N.")
@setting("--participation", float, "Share of the clients that take part in a round.")
@setting(
    "--sampling", click.Choice(["all", "fixed_fraction", "bernoulli"]), "How the participants are drawn."
)
@setting("--memory", click.Choice(["keep", "reset"]), "What clients remember of a method, or nothing.")
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
@setting("--clients-limit", int, "Truncate: train only the first K of a round's clients. [default: all]")
@setting("--steps-limit", int, "Truncate: K steps per local epoch at most. [default: all]")
@setting("--evaluate-on", click.Choice(["test", "validation"]), "Which split accuracies are of.")
@setting(
    "--eval-model",
    click.Choice(["cld", "sel", "all"]),
    "Whose accuracy counts: the server's model, the mean of the round's clients, or of all clients' last.",
)
@setting("--eval-drop-last", bool, "Leave out the evaluation's last, smaller batch: true or false.")
@setting("--target", float, "Accuracy to count the rounds to, such as 0.5. [default: none]")
@setting(
    "--shift", click.Choice(["none", "bernoulli", "fixed10"]), "Concept shift: labels change over rounds."
)
@setting("--shift-probability", float, "Of a shift in a round, under --shift bernoulli.")
@setting("--shift-sequence", int, "Which random sequence of shifts.")
@setting(
    "--shift-metric",
    click.Choice(["mean_best_since_shift", "mean_current"]),
    "How a run under concept shift is summarised.",
)
@setting(
    "--weights",
    click.Choice(["n_k", "n_used", "uniform"]),
    "Clients' weights in the mean: their samples, those an epoch uses, or equal. [default: the method's]",
)
@setting("--reading", click.Choice(["paper", "code"]), "Where paper and published code disagree.")
@setting("--seed", int, "Seed of every random stream.")
@click.option(
    "--seeds", type=options.SEEDS, metavar="A,B,…", help="Train one run per seed: NAME-sA, NAME-sB…"
)
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
@click.option("--resume", is_flag=True, help="Continue the run --name; a finished one with more --rounds.")
@click.option(
    "--tensorboard", is_flag=True, help="Write the metrics for TensorBoard too, into the run's folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
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
    tensorboard: bool,
    as_json: bool,
    seeds: tuple[int, ...] | None,
    **fields: object,
) -> None:
    """Train a federated method; without options, FedAvg on the bundled digits.

    On several machines start it with torchrun instead of --workers; every process takes the same options.
    """
    from fedscope.cli import training  # torch: not for --help

    fields = {key: value for key, value in fields.items() if value is not None}
    ctx = click.get_current_context()
    if seeds and "seed" in fields and ctx.get_parameter_source("seed") is ParameterSource.COMMANDLINE:
        raise UserError("--seed is one run's, and --seeds are several; leave one of them out")
    training.run(
        fields, ctx.meta.get(config.OPTIONS, {}) | training.pairs(given), registry, name,
        preset=preset, device=device, threads=threads, count=count, resume=resume, data_dir=data_dir,
        tensorboard=tensorboard, as_json=as_json, seeds=seeds,
    )  # fmt: skip
