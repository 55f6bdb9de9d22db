"""`fedscope train`: run a federated method and register its checkpoints."""

from pathlib import Path

import click
from click.core import ParameterSource

from fedscope.cli import catalogues, completion, config, options
from fedscope.cli.command import Command
from fedscope.cli.settings import setting
from fedscope.errors import UserError

GROUPS = {
    "Most used": ("--method", "--dataset", "--model", "--clients", "--rounds", "--name"),
    "Experiment": ("--preset", "--config", "--set", "--reading", "--seed", "--seeds"),
    "Data": ("--test-data", "--data-dir", "--augmentation", "--train-samples", "--test-samples"),
    "Clients": ("--partition", "--alpha", "--exhausted", "--phi", "--rho", "--participation", "--sampling",
                "--memory"),
    "Local training": ("--epochs", "--batch-size", "--drop-last", "--lr", "--lr-decay", "--momentum",
                       "--nesterov", "--optimizer-state", "--weight-decay", "--clip"),
    "Network": ("--head", "--shortcut"),
    "Server and evaluation": ("--weights", "--validation", "--evaluate-on", "--eval-model",
                              "--eval-drop-last", "--target"),
    "Concept shift": ("--shift", "--shift-probability", "--shift-sequence", "--shift-metric"),
    "Machine": ("--device", "--workers", "--threads", "--precision", "--compile", "--stack"),
    "What is kept": ("--registry", "--save-clients", "--keep-every", "--resume", "--tensorboard", "--json"),
    "Trying out": ("--clients-limit", "--steps-limit"),
}  # fmt: skip
EXAMPLES = {
    "fedscope train": "FedAvg on the bundled digits",
    "fedscope train --method fedprox --set prox.mu=0.1 --alpha 0.1 --name prox": "a method and its option",
    "fedscope train --preset fedalign/t1 --method fedavg --data-dir data": "a row of a paper's table",
    "fedscope train --model mine:Net --data mine:clients": "a network and data of your own, by import path",
    "fedscope train --seeds 0,1,2 --name three": "a run per seed, with mean and spread",
    "fedscope train --resume --name prox": "an interrupted run, continued",
}


@click.command("train", cls=Command, groups=GROUPS, examples=EXAMPLES)
@click.option(
    "--config", type=click.Path(path_type=Path), is_eager=True, expose_value=False, callback=config.read,
    metavar="FILE.toml", help="Take options from a file; `fedscope runs export --format config` writes one.",
)  # fmt: skip
@click.option(
    "--preset",
    shell_complete=completion.of("preset"),
    help="Start from a paper's experiment; `fedscope presets list` has them.",
)
@setting("method", "A method, or a sum such as feddyn+man; `fedscope methods list` has them.")
@setting("dataset", "A data set of `fedscope data list`, or MODULE:FACTORY of your own.", "--data")
@setting("test_data", "MODULE:FACTORY of what to evaluate on, with data of your own. [default: a fifth]")
@options.data_dir
@setting("model", "A network of `fedscope models list`, or MODULE:FACTORY. [default: the data set's]")
@setting("head", "Projection head before the classifier. [default: the method's]")
@setting("shortcut", "Shortcuts of resnet20: padding, or projection. [default: A]")
@setting("augmentation", "Pipeline of the data set, such as fedalign, man or none. [default: its first]")
@setting("partition", "Who holds what: iid, dirichlet_balanced, dirichlet_equal… (docs/partitions.md).")
@setting("alpha", "Dirichlet concentration; smaller is more heterogeneous.")
@setting("exhausted", "dirichlet_equal: when a class is used up.")
@setting("phi", "longtail_stateless: share of the data that a client draws.")
@setting("rho", "longtail_stateless: the rarest class over the most frequent.")
@setting("clients", "Number of clients N.")
@setting("participation", "Share of the clients that take part in a round.")
@setting("sampling", "How the participants are drawn.")
@setting("memory", "What clients remember of a method, or nothing.")
@setting("rounds", "Communication rounds T.")
@setting("epochs", "Local epochs E.")
@setting("batch_size", "Local batch size B.")
@setting("drop_last", "Leave out an epoch's last, smaller batch.")
@setting("lr", "Local learning rate in the first round.")
@setting("lr_decay", "Factor on the learning rate after each round.")
@setting("momentum", "Momentum of the local SGD.")
@setting("nesterov", "Nesterov momentum.")
@setting("optimizer_state", "Momentum begins anew in each round, or is kept by each client.")
@setting("weight_decay", "Weight decay, applied after clipping.")
@setting("clip", "Clip the gradient's global norm at this value. [default: no clipping]")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the method, such as man.zeta=0.1.",
)
@setting("precision", "bf16: forward and backward pass under autocast.")
@setting("compile", "Compile the network (torch.compile).")
@setting("stack", "Train up to K clients of equal size as one batched computation; for small models.")
@setting("train_samples", "Train on a random part of this many samples. [default: all]")
@setting("test_samples", "Evaluate on a random part of this many samples. [default: all]")
@setting("clients_limit", "Truncate: train only the first K of a round's clients. [default: all]")
@setting("steps_limit", "Truncate: K steps per local epoch at most. [default: all]")
@setting("validation", "Share of each client's rows to hold out of training, and choose the best round on.")
@setting("evaluate_on", "Which split accuracies are of.")
@setting(
    "eval_model",
    "Whose accuracy counts: the server's model, the mean of the round's clients, or of all clients' last.",
)
@setting("eval_drop_last", "Leave out the evaluation's last, smaller batch.")
@setting("target", "Accuracy to count the rounds to, such as 0.5. [default: none]")
@setting("shift", "Concept shift: labels change over rounds.")
@setting("shift_probability", "Of a shift in a round, under --shift bernoulli.")
@setting("shift_sequence", "Which random sequence of shifts.")
@setting("shift_metric", "How a run under concept shift is summarised.")
@setting(
    "weights",
    "Clients' weights in the mean: their samples, those an epoch uses, or equal. [default: the method's]",
)
@setting("reading", "Where paper and published code disagree.")
@setting("seed", "Seed of every random stream.")
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
@click.option("--name", shell_complete=completion.runs, help="Name of the run. [default: METHOD-DATASET]")
@setting("save_clients", "Which of the clients' uploads to keep.")
@setting("keep_every", "Also keep the global model every K rounds.")
@click.option("--resume", is_flag=True, help="Continue the run --name; a finished one with more --rounds.")
@click.option(
    "--tensorboard", is_flag=True, help="Write the metrics for TensorBoard too, into the run's folder."
)
@options.json_target
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
    from fedscope.cli import training  # torch: not for --help

    fields = {key: value for key, value in fields.items() if value is not None}
    ctx = click.get_current_context()
    if seeds and "seed" in fields and ctx.get_parameter_source("seed") is ParameterSource.COMMANDLINE:
        raise UserError("--seed is one run's, and --seeds are several; leave one of them out")
    training.run(
        fields, ctx.meta.get(config.OPTIONS, {}) | training.pairs(given), registry, name,
        preset=preset, device=device, threads=threads, count=count, resume=resume, data_dir=data_dir,
        tensorboard=tensorboard, json_target=json_target, seeds=seeds,
    )  # fmt: skip
