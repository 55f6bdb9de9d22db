"""`fedscope runs add`: checkpoints that another program wrote, registered."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.terminal import console
from fedscope.workflows.option_fields import Rule


def _is_known(dataset: str) -> bool:
    from fedscope.data.sets.dataset_catalogue import DATASETS

    return dataset in DATASETS


_OWN: OptionRule = Rule(
    "augmentation data_dir",
    lambda v: ":" not in v["model"] or _is_known(v["dataset"]),
    "with a network of your own on data that fedscope lacks",
)


@click.command(
    "add",
    cls=Command,
    rules=(_OWN,),
    examples={
        "fedscope runs add w.pt --model resnet20 --dataset cifar10 --name w": "another program's weights"
    },
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--model",
    required=True,
    metavar="NAME|MODULE:FACTORY",
    shell_complete=completion.names_of("model"),
    help="Its network; see models list.",
)
@click.option(
    "--dataset",
    "--data",
    required=True,
    metavar="NAME|MODULE:FACTORY",
    shell_complete=completion.names_of("dataset"),
    help="What it was trained on; see data list. A factory's may be a data set for each client.",
)
@click.option("--test-data", metavar="MODULE:FACTORY", help="What to evaluate on, with data of your own.")
@click.option("--name", metavar="RUN", help="Of the run. [default: of the file or folder]")
@click.option("--method", help="That trained it. [default: unknown]")
@click.option(
    "--round", type=click.IntRange(0), help="Rounds it has been trained for, where its name does not say."
)
@click.option("--client", "clients", multiple=True, metavar="FILE|K=FILE", type=click.Path(path_type=str),
              help="A client's file; may be repeated. K is its number from 0; without K that in the file's "
              "name (client_K). Files without one are numbered in their order, and have no data of their "
              "own. A single .npy has a row for each.")  # fmt: skip
@click.option(
    "--entry", default="", metavar="KEY", help="Which of several state_dicts in the file, such as model_ema."
)
@click.option(
    "--client-entry", default="", metavar="KEY", help="The same in the clients' files. [default: as --entry]"
)
@click.option(
    "--rows",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Which rows of the training set each client held: {client: [rows]}, from 0, as JSON; or .npz.",
)
@click.option(
    "--bn",
    type=click.Choice(["eval", "recalibrate"]),
    default="eval",
    help="recalibrate: take weights without BatchNorm's statistics, to be measured with --bn recalibrate.",
)
@click.option("--augmentation", metavar="NAME", help="The pipeline whose normalisation it was trained with.")
@shared.data_dir
@shared.registry
def command(
    path: Path,
    model: str,
    dataset: str,
    test_data: str | None,
    name: str | None,
    method: str | None,
    round: int | None,
    clients: tuple[str, ...],
    entry: str,
    client_entry: str,
    rows: Path | None,
    bn: Literal["eval", "recalibrate"],
    augmentation: str | None,
    data_dir: Path | None,
    registry: Path,
) -> None:
    """Register checkpoints that another program wrote, so that every command takes them.

    PATH is a file (torch.save, .safetensors, .npz), or a folder: server.pt with client_K.pt (FedAlign),
    R_com_sel.pt and the like (FedDyn), round-R-weights.npz and the like (Flower), rRRRR_server.pth (fluke),
    checkpoint_MODEL_R.pth (Plato), NAME.R (FLGo), FL_global_model.pt (NVFlare), checkpoint.pt with
    central_optimizer.pt (pfl), model.safetensors or pytorch_model.bin (Hugging Face).
    """
    from fedscope.adoption.adding import add
    from fedscope.adoption.identity import identify
    from fedscope.adoption.layouts import clients_of, look

    store, files = RunRegistry(registry), clients_of(clients)
    look(path, files)  # the data may have to be fetched: what is missing is said before
    if name is not None:
        store.check_free(name)
    identity = identify(
        model, dataset, data_dir=data_dir, augmentation=augmentation, test_data=test_data, partition=rows
    )
    known = {"method": method} if method else {}

    def added(chosen: str) -> tuple[RunFolder, Sequence[str]]:
        return add(
            path, identity, store, chosen, known=known, round=round, clients=files, entry=entry,
            client_entry=client_entry, bn=bn,
        )  # fmt: skip

    run, notes = added(name) if name else store.under_free_name(_name(path), added)
    for note in notes:
        console.note(note)
    print(run.name)


def _name(path: Path) -> str:
    resolved = path.resolve()
    stem = resolved.name if resolved.is_dir() else resolved.stem
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", stem).strip("-._+")[:90] or "added"
