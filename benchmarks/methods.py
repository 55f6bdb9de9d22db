"""Every method on the real CIFAR-100: what it reaches in a short run, and what its step costs.

    python benchmarks/methods.py --data-dir DIR --registry RUNS --json benchmarks/methods.json

10,000 training images, 10 clients, Dirichlet α 0.5, rounds of 2 local epochs: 8 of ``resnet56_bottleneck``
for the methods of FedAlign's paper and for FedBN, which needs BatchNorm, 5 of ``convnet_cifar`` for all
others; those in ``LATER`` run longer. A run that the record or the registry has is not trained again. Seconds
are those of whole local steps on the same batches; the methods of a family take turns, and a ratio is the
median over the turns of the ratios to FedAvg within a turn. Costs are counted
(:mod:`fedscope.federated.costs.training_cost`). The record is written after each method. All is in bf16 where
the processor has instructions for it and in fp32 elsewhere, which the record says of each run and of the
times.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import machine
import torch
from tables import row

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.costs.training_cost import cost
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import Task
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, local_settings, open_run, prepare
from fedscope.process import has_bfloat16, set_up
from fedscope.streams import torch_stream

COMMON: dict[str, Any] = {
    "dataset": "cifar100", "train_samples": 10_000, "test_samples": 2_000, "clients": 10, "alpha": 0.5,
    "rounds": 5, "epochs": 2, "threads": 1, "save_clients": "none",
}  # fmt: skip
RESIDUAL: dict[str, Any] = {
    "model": "resnet56_bottleneck", "rounds": 8, "augmentation": "none", "batch_size": 16, "lr": 0.01,
    "lr_decay": 0.8, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4, "drop_last": True,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "model": "convnet_cifar", "augmentation": "man", "partition": "dirichlet_equal", "batch_size": 20,
    "lr": 0.1, "lr_decay": 0.998, "weight_decay": 1e-3, "clip": 10.0,
}  # fmt: skip
# methods that learn later than the others: all the same but more rounds, so that each is seen to learn
LATER: dict[str, dict[str, Any]] = {
    "moon": {"rounds": 18, "lr_decay": 0.9},
    "stochdepth": {"rounds": 12, "lr_decay": 0.87},
    "fedalign": {"rounds": 12, "lr_decay": 0.87},
    "gradaug": {"lr_decay": 0.87},
    "fedasam+man": {"rounds": 10},
    "mofedsam": {"rounds": 15},
}
# Mendieta et al. 2022, Table 5: multiply-accumulates and stored parameters in millions, seconds per round
PRINTED: dict[str, tuple[float, float, float]] = {
    "fedavg": (87.3, 0.61, 137.2),
    "fedprox": (87.3, 1.21, 161.9),
    "moon": (262.2, 2.21, 414.2),
    "mixup": (87.3, 0.61, 137.8),
    "stochdepth": (82.4, 0.61, 136.7),
    "gradaug,gradaug.n=1": (133.9, 0.61, 229.2),
    "gradaug": (170.7, 0.61, 323.9),
    "gradaug,gradaug.n=3": (217.4, 0.61, 417.7),
    "gradaug,gradaug.n=4": (264.1, 0.61, 514.4),
    "fedalign": (89.1, 0.61, 166.2),
}
HOSTS = ("fedavg", "fedsam", "fedasam", "feddyn", "feddc", "fedspeed")
SERVERS = ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "fednova")
OTHERS = ("scaffold", "fedprox", "fedcurv", "fedfor")
FLAT = (
    "mofedsam", "fedgamma", "fedsmoo", "fedlesam", "fedlesam-s", "fedlesam-d", "fedgf", "fedgloss",
    "fedtoga", "fednsam", "fedwmsam", "fedasam+swa", "fedswa", "fedmoswa", "fedavg+ema",
)  # fmt: skip
SINCE = ("fedcm", "fedntd", "fedsol", "fedlc", "fedrs", "feddecorr", "fedexp", "fedacg")
FAMILIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "fedalign": (RESIDUAL, (*PRINTED, "fedbn")),
    "man": (PLAIN, (*HOSTS, *(f"{host}+man" for host in HOSTS), *OTHERS, *SERVERS, *FLAT, *SINCE)),
}
TINY: dict[str, Any] = {
    "dataset": "digits", "model": "resnet_digits", "augmentation": None, "train_samples": 160,
    "test_samples": 50, "rounds": 1, "clients": 2,
}  # fmt: skip
COST_ONLY = ("gradaug,gradaug.n=1", "gradaug,gradaug.n=3", "gradaug,gradaug.n=4")
PRECISION = "bf16" if has_bfloat16(torch.device("cpu")) else "fp32"
STEPS = 2  # of a turn
DRAWS = 500  # steps over which the cost of what chance decides is averaged


def federated(family: str, name: str, options: argparse.Namespace) -> Federation:
    """Return the federation of ``method,option=value…``."""
    method, *pairs = name.split(",")
    given = dict(pair.split("=") for pair in pairs)
    own = {**FAMILIES[family][0], **LATER.get(name, {}), "method": method, "precision": PRECISION}
    fields = {**COMMON, **own, **options.changes}
    return prepare(parse(Settings, fields, "settings"), given, options.data_dir)


def trained(family: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a whole run reaches; train it if the registry has none."""
    federation = federated(family, name, options)
    registry = RunRegistry(options.registry)
    label = "-".join([family, name, *map(str, LATER.get(name, {}).values())])
    run = open_run(federation, registry, label, resume=(options.registry / label).exists())
    with run.locked():
        metrics = train(federation, run, lambda m: print(f"{label}: round {m.round}", flush=True))
    return {
        "precision": run.manifest().settings.precision,
        "accuracy": [m.accuracy for m in metrics],
        "loss": [m.loss for m in metrics],
        "train_loss": [m.train_loss for m in metrics],
        "seconds": round(sum(float(str(m.seconds)) for m in metrics)),
    }


class Stepper:
    """Times ``STEPS`` local steps of one client, and what ends its training (FedCurv: a pass over data)."""

    def __init__(self, federation: Federation):
        settings = federation.settings
        self.trainer = LocalTrainer(
            FlatModel(federation.model), federation.dataset.train, federation.pipeline, federation.method,
            settings.options, local_settings(settings.model_copy(update={"epochs": 1}), "n_k"),
            classes=len(federation.dataset.classes),
        )  # fmt: skip
        self.start = self.trainer.model.values[0].clone()
        rows = federation.rows[0][: STEPS * settings.batch_size]
        self.rows, self.lr, self.seed = rows, settings.lr, settings.seed

    def seconds(self) -> float:
        """Return the seconds of a turn's steps."""

        def stream(name: str) -> torch.Generator:
            return torch_stream(self.seed, name)

        task = Task(self.rows, stream("order"), stream("augmentation"), random=stream)
        before = perf_counter()
        self.trainer.train(self.start, self.trainer.model.counters.clone(), [task], self.lr)
        return perf_counter() - before


def ratios(family: str, names: list[str], options: argparse.Namespace) -> dict[str, list[float]]:
    """Return each method's seconds relative to FedAvg's, one number per turn."""
    steppers = {name: Stepper(federated(family, name, options)) for name in names}
    for stepper in steppers.values():
        stepper.seconds()  # warm-up
    turns = [{name: stepper.seconds() for name, stepper in steppers.items()} for _ in range(options.turns)]
    return {name: [turn[name] / turn["fedavg"] for turn in turns] for name in names}


def main() -> None:
    """Train what is missing, time and count, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-100's parquet files")
    parser.add_argument("--registry", type=Path, required=True, help="where the runs are, or will be")
    parser.add_argument("--json", type=Path, required=True, help="the record; what it holds is kept")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="only this one")
    parser.add_argument("--only", nargs="*", help="only these methods, and FedAvg")
    parser.add_argument("--turns", type=int, default=7, help="of the timing; 0: none")
    parser.add_argument("--untrained", action="store_true", help="count and time, train nothing")
    parser.add_argument("--tiny", action="store_true", help="on bundled data, to try the harness")
    options = parser.parse_args()
    options.changes = {}
    if options.tiny:
        options.changes = TINY
    set_up(torch.device("cpu"), 1)
    record = json.loads(options.json.read_text()) if options.json.exists() else {}
    record |= {"schema": "fedscope/benchmark-methods/1", "steps_timed": STEPS}
    for family in options.family or FAMILIES:
        settings, names = FAMILIES[family]
        entry = record.setdefault(family, {})
        if (entry.get("settings"), entry.get("common")) != (settings, COMMON):
            entry.clear()
            entry.update(settings=settings, common=COMMON, methods={})
        chosen = [name for name in names if not options.only or name in ("fedavg", *options.only)]
        for name in chosen:
            found = entry["methods"].setdefault(name, {})
            if found.setdefault("own_settings", {}) != LATER.get(name, {}):
                found.pop("run", None)
                found["own_settings"] = LATER.get(name, {})
            found["cost"] = asdict(cost(federated(family, name, options), DRAWS))
            if not options.untrained and name not in COST_ONLY and "run" not in found:
                found["run"] = {**trained(family, name, options), "machine": machine.record(None)}
            options.json.write_text(json.dumps(record, indent=1) + "\n")
        for name, values in ratios(family, chosen, options).items() if options.turns else ():
            found = {
                "turns": values, "median": median(values), "precision": PRECISION,
                "machine": machine.record(None),
            }  # fmt: skip
            entry["methods"][name]["seconds_relative_to_fedavg"] = found
        options.json.write_text(json.dumps(record, indent=1) + "\n")
        print(table(family, entry))


def table(family: str, entry: dict[str, Any]) -> str:
    """Return a family's record as Markdown."""
    printed = family == "fedalign"
    heads = ["method", "rounds", "accuracy, %", "time", "M MACs", "M scalars"]
    heads += ["printed: time", "M MACs", "M scalars"] if printed else []
    lines = [row(heads), row(["---", *["---:"] * (len(heads) - 1)])]
    for name, found in entry["methods"].items():
        accuracy = found.get("run", {}).get("accuracy")
        time = found.get("seconds_relative_to_fedavg", {}).get("median")
        cells = [
            name.replace(",gradaug.", ", "),
            f"{len(accuracy)}" if accuracy else "",
            f"{100 * accuracy[-1]:.2f}" if accuracy else "",
            f"{time:.2f}" if time else "",
            f"{found['cost']['multiply_accumulates'] / 1e6:.2f}",
            f"{found['cost']['parameters_held'] / 1e6:.3f}",
        ]
        if printed and name in PRINTED:
            macs, held, seconds = PRINTED[name]
            cells += [f"{seconds / PRINTED['fedavg'][2]:.2f}", f"{macs}", f"{held}"]
        elif printed:
            cells += ["", "", ""]
        lines.append(row(cells))
    return "\n".join([f"\n### {family}\n", *lines])


if __name__ == "__main__":
    main()
