"""Options that are fields of a run's settings: flags, types, choices and defaults are the fields'."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import click
from pydantic_core import PydanticUndefined

from fedscope.checkpoints.file.settings import Settings
from fedscope.cli.options import completion
from fedscope.cli.options.request_options import CountOr
from fedscope.cli.options.shared import Decorator
from fedscope.workflows.option_fields import plain_type

HELP = {
    "method": "A method, or a sum such as feddyn+man; `fedscope methods list` has them.",
    "dataset": "A data set of `fedscope data list`, MODULE:FACTORY, or text:PATH and images:PATH for a "
    "pretrained --model.",
    "test_data": "MODULE:FACTORY of what to evaluate on, with data of your own. [default: a fifth]",
    "loss": "MODULE:FUNCTION of (output, targets): the mean over the samples. [default: cross-entropy]",
    "model": "A network of `fedscope models list`, MODULE:FACTORY, or hf:FOLDER of a pretrained one. "
    "[default: the data set's]",
    "lora": "Train only LoRA adapters of --model hf:NAME, such as r=8,alpha=16,targets=c_attn.",
    "head": "Projection head before the classifier. [default: the method's]",
    "shortcut": "Shortcuts of resnet8 and resnet20: padding, or projection. [default: A]",
    "augmentation": "Pipeline of the data set, such as fedalign, man or none. [default: its first]",
    "partition": "Who holds what: iid, dirichlet_balanced, shards, quantity_skew… (docs/partitions.md).",
    "alpha": "Dirichlet concentration; smaller is more heterogeneous.",
    "exhausted": "dirichlet_equal: when a class is used up.",
    "phi": "longtail_stateless: share of the data that a client draws.",
    "rho": "longtail_stateless: the rarest class over the most frequent.",
    "shards": "shards: how many each client gets of the data sorted by class.",
    "classes_per_client": "fixed_classes: how many classes each client has.",
    "clients": "Number of clients N.",
    "participation": "Share of the clients that take part in a round.",
    "sampling": "How the participants are drawn.",
    "memory": "What clients remember of a method, or nothing.",
    "rounds": "Communication rounds T.",
    "epochs": "Local epochs E.",
    "local_steps": "Steps of a round instead of --epochs; the data are shuffled anew for each pass.",
    "stragglers": "Share of a round's clients that make fewer epochs or steps, a random number of them.",
    "straggler_min": "The least that a straggler makes.",
    "batch_size": "Local batch size B.",
    "drop_last": "Leave out an epoch's last, smaller batch.",
    "lr": "Local learning rate, in the first round or after --lr-warmup.",
    "lr_decay": "Factor on the learning rate after each round, or after --lr-step rounds.",
    "lr_schedule": "How the learning rate falls over the rounds.",
    "lr_step": "step: rounds from one drop to the next.",
    "lr_min": "cosine: the rate that it falls to.",
    "lr_warmup": "Rounds in which the learning rate grows linearly.",
    "optimizer": "Local optimizer; adamw decays the weights beside the step.",
    "adam_beta1": "Adam: decay of the mean of the gradients.",
    "adam_beta2": "Adam: decay of the mean of their squares.",
    "adam_eps": "Adam: number beside the root of that mean.",
    "momentum": "Momentum of the local SGD.",
    "nesterov": "Nesterov momentum.",
    "optimizer_state": "The optimizer's state begins anew in each round, or is kept by each client.",
    "weight_decay": "Weight decay, applied after clipping.",
    "clip": "Clip the gradient's global norm at this value. [default: no clipping]",
    "precision": "bf16: forward and backward pass under autocast.",
    "compile": "Compile the network (torch.compile).",
    "stack": "Train up to K clients of equal size as one batched computation; auto: many clients of a small "
    "network of linear layers. [default: auto]",
    "train_samples": "Train on a random part of this many samples. [default: all]",
    "test_samples": "Evaluate on a random part of this many samples. [default: all]",
    "clients_limit": "Truncate: train only the first K of a round's clients. [default: all]",
    "steps_limit": "Truncate: K steps per local epoch at most. [default: all]",
    "validation": "Share of each client's rows to hold out of training, and choose the best round on.",
    "evaluate_on": "Which split accuracies are of.",
    "eval_model": "Whose accuracy counts: the server's model, the mean of the round's clients, or of all "
    "clients' last.",
    "eval_drop_last": "Leave out the evaluation's last, smaller batch.",
    "evaluate_every": "Evaluate the models every K rounds, and after the last.",
    "target": "Accuracy to count the rounds to, such as 0.5. [default: none]",
    "shift": "Concept shift: labels change over rounds.",
    "shift_probability": "Of a shift in a round, under --shift bernoulli.",
    "shift_sequence": "Which random sequence of shifts.",
    "shift_metric": "How a run under concept shift is summarised.",
    "weights": "Clients' weights in the mean: their samples, those an epoch uses, or equal. "
    "[default: the method's]",
    "reading": "Where paper and published code disagree.",
    "seed": "Seed of every random stream.",
    "save_clients": "Which of the clients' uploads to keep.",
    "keep_every": "Also keep the global model every K rounds; 0: never.",
    "keep_steps": "Also keep clients' models after every S-th local step: S:CLIENTS:ROUNDS, as 5:0,3:1,10.",
    "probe_curvature": "Measure λ_max and trace of the global model every K rounds; 0: never.",
    "probe_samples": "Training samples that --probe-curvature measures on.",
}


def settings(
    *names: str, helps: Mapping[str, str] | None = None, aliases: Mapping[str, str] | None = None
) -> Decorator:
    """Return what adds the options of these fields of :class:`Settings`, or of all, to a command.

    A truth value becomes a pair, ``--nesterov/--no-nesterov``. What the user leaves out is None.

    Args:
        names: of the fields; none: all.
        helps: lines of help instead of the usual ones.
        aliases: a second flag of a field.
    """
    helps, aliases = {**HELP, **(helps or {})}, aliases or {}

    def add(function: Any) -> Any:
        for name in reversed(names or tuple(HELP)):
            function = _option(name, helps[name], aliases.get(name))(function)
        return function

    return add


def _option(name: str, help: str, alias: str | None) -> Decorator:
    field, flag = Settings.model_fields[name], f"--{name.replace('_', '-')}"
    kind = plain_type(field.annotation)
    if get_origin(kind) is Literal:
        kind = click.Choice(get_args(kind))
    if kind is bool:
        flag, kind = f"{flag}/{flag.replace('--', '--no-')}", None
    elif name == "stack":
        kind = CountOr("auto")
    elif field.default not in (None, PydanticUndefined):
        help = f"{help} [default: {field.default}]"
    complete = completion.names_of(name) if name in ("method", "model", "dataset") else None
    flags = (flag, alias) if alias else (flag,)
    return click.option(
        *flags, name, type=kind, default=None, help=help, shell_complete=complete,
        metavar="auto|K" if name == "stack" else None,
    )  # fmt: skip
